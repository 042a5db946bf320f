"""What does a process leave to those that come of it? They launch, and it does nothing itself. Argument: the path of launch_storm.

One child was there before, and launches 40 times once a line is read; one is spawned then (60), one forked (80). At its end it
leaves one behind that sleeps, and says its number.
"""

from __future__ import annotations

import os
import subprocess
import sys

STORM = [sys.argv[1], "--threads", "1", "--launches"]

if __name__ == "__main__":
    early = subprocess.Popen([*STORM, "40", "--gate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    early.stdout.readline()
    print("ready", flush=True)
    sys.stdin.readline()
    subprocess.run([*STORM, "60"], stdout=subprocess.DEVNULL, check=True)
    if not os.fork():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(STORM[0], [*STORM, "80"])
    os.wait()
    early.communicate(b"\n")
    sleeper = subprocess.Popen(
        ["sleep", "3600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    print(sleeper.pid, flush=True)
    os._exit(0)
