"""Runs a Python program as one whose arguments and variables are where nobody answers: whoever reads them waits for ever.

They lie on pages of a userfaultfd that nobody serves; the kernel is told that the process's command line and environment
are there. Says why, and ends with 77, where the kernel does not let it.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import runpy
import struct
import sys

_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
_API, _REGISTER, _MISSING = 0xC018AA3F, 0xC020AA00, 1
_SET_MM, _SET_MM_MAP = 35, 14
_SIZE = 1 << 16
_CANNOT = 77
_kept: list[mmap.mmap] = []


def _unanswered() -> int:
    """Return an address at which nothing can be read, nor is it known that nothing can."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(_USERFAULTFD[platform.machine()], os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    fcntl.ioctl(descriptor, _API, struct.pack("3Q", 0xAA, 0, 0))
    memory = mmap.mmap(-1, _SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _kept.append(memory)
    fcntl.ioctl(descriptor, _REGISTER, struct.pack("4Q", address, _SIZE, _MISSING, 0))
    return address


def _hide_start() -> None:
    at = _unanswered()
    with open("/proc/self/stat") as stat:
        fields = [0, 0, 0, *stat.read().rpartition(")")[2].split()]  # numbered as in proc(5)
    code, data, stack, brk = fields[26:28], fields[45:47], fields[28], fields[47]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    addresses = [*code, *data, brk, libc.sbrk(0), stack, at, at + 1000, at + 4096, at + 9000]
    request = struct.pack("12QIi", *map(int, addresses), 0, 0, -1)
    if libc.prctl(_SET_MM, _SET_MM_MAP, ctypes.c_char_p(request), ctypes.c_ulong(len(request)), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), "PR_SET_MM_MAP")


def main() -> None:
    try:
        _hide_start()
    except OSError as error:
        print(f'{{"event": "cannot", "why": "{error.strerror}: {os.strerror(error.errno)}"}}', flush=True)
        sys.exit(_CANNOT)
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
