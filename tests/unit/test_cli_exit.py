"""A command that leaves while threads of its own are busy ends, and whatever keeps its probes ends after it."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import threading
from otel_gpu.cli import exit as command_exit
def spin():
    while True: pass
for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()
command_exit._KEPT = ("pipe:",)
command_exit.leave(7)
"""
_ROUNDS = 5


def test_what_keeps_the_probes_does_not_wait_for_threads_that_have_ended() -> None:
    programs = [subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE) for _ in range(_ROUNDS)]
    for program in programs:
        # The pipe ends when the last process that has inherited it has ended.
        assert program.communicate(timeout=120) == (b"", None)
        assert program.returncode == 7
