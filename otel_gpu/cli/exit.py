"""How does the command end while the kernel still takes its probes away? A child keeps them until that is done."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from typing import NoReturn

from ..service.ending import is_going_on

_KEPT = ("anon_inode:[perf_event]", "anon_inode:bpf_link", "anon_inode:bpf-link")
_KEEPER = "import sys; sys.stdin.read()"
"""Nothing is written to it: it reads until this process has ended."""


def end(code: int) -> int:
    """Return the exit code, or leave with it where something would hold up Python's own end."""
    if is_going_on():
        leave(code)
    return code


def leave(code: int) -> NoReturn:
    """End the process now.

    Where probes are perf events the kernel needs up to 0.2 s to let go of each, one after the other, and a process is
    not gone before. So another one inherits them, and ends when this one has. It is another program, not a fork: whatever
    locks other threads hold would be held in that for good.
    """
    with contextlib.suppress(Exception):
        logging.shutdown()
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        if probes := _probes():
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _KEEPER],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=probes,
                start_new_session=True,
            )
    os._exit(code)


def _probes() -> list[int]:
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(_KEPT):
                found.append(fd)
    return found
