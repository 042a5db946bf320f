"""How does the command end while the kernel still takes its probes away? A child keeps them until that is done."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
import time
from typing import NoReturn

from ..ending import is_going_on

_KEPT = ("anon_inode:[perf_event]", "anon_inode:bpf_link", "anon_inode:bpf-link")
_LOOK_S = 0.05


def end(code: int) -> int:
    """Return the exit code, or leave with it where something would hold up Python's own end."""
    if is_going_on():
        leave(code)
    return code


def leave(code: int) -> NoReturn:
    """End the process now.

    Where probes are perf events the kernel needs up to 0.2 s to let go of each, one after the other, and a process is
    not gone before. So a child inherits them, closes everything else, and ends when this process has.
    """
    with contextlib.suppress(Exception):
        logging.shutdown()
        sys.stdout.flush()
    parent = os.getpid()
    with contextlib.suppress(AttributeError, OSError):
        # Without handlers of libraries, which may wait for what hangs, and without letting go of Python's lock.
        if ctypes.PyDLL(None)._Fork() == 0:  # noqa: SLF001 - glibc's name (2.34)
            _outlive(parent)
    os._exit(code)


def _outlive(parent: int) -> NoReturn:
    try:
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if not os.readlink(f"/proc/self/fd/{fd}").startswith(_KEPT):
                    os.close(fd)
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
    finally:
        os._exit(0)
