"""A launcher and a tree of processes that it starts in every way there is, each with launches of its own.

Arguments: the path of launch_storm. One child is there before the launcher says "ready"; the others begin once it has read a
line. In all the tree makes 1,051 launches, the launcher 101 of them.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
import time

from ctypes_calls import launch_attend

STORM = sys.argv[1]


def launch(times: int) -> None:
    """Launch a kernel so many times."""
    launch_attend(times)
    # A process of multiprocessing ends without its exit handlers: the mock driver writes now what it saw.
    ctypes.CDLL("libcuda.so.1").mockcuda_dump(None)


def storm(times: int) -> str:
    """Return a shell's words for launch_storm."""
    return f"{STORM} --threads 1 --launches {times}"


def forked(times: int) -> None:
    """Launch in a copy of this process."""
    if not (pid := os.fork()):
        launch(times)
        os._exit(0)
    os.waitpid(pid, 0)


def daemon(times: int) -> None:
    """Leave a process behind that begins when its parent and its session are gone."""
    if pid := os.fork():
        os.waitpid(pid, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(1)
    os.execv(STORM, storm(times).split())


if __name__ == "__main__":
    early = subprocess.Popen([*storm(215).split(), "--gate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    early.stdout.readline()
    print('{"event": "ready"}', flush=True)
    # The standard output is the launcher's alone.
    os.dup2(2, 1)
    sys.stdin.readline()
    daemon(102)
    forked(103)
    spawned = multiprocessing.get_context("spawn").Process(target=launch, args=(104,))
    spawned.start()
    subprocess.run(["sh", "-c", f"{storm(105)} & {storm(106)}; wait"], check=True)
    subprocess.run(["sh", "-c", f"exec sh -c 'exec {storm(107)}'"], check=True)
    thread = threading.Thread(target=forked, args=(108,))
    thread.start()
    thread.join()
    launch(101)
    early.communicate(b"\n")
    spawned.join()
