"""Runs a Python program as one whose arguments and variables are where nobody answers: whoever reads them waits for ever.

They lie on pages of a userfaultfd that nobody serves; the kernel is told that the process's command line and environment
are there. Says why, and ends with 77, where the kernel does not let it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import struct
import sys

from stalled import behind_userfaultfd

_SET_MM, _SET_MM_MAP = 35, 14
_CANNOT = 77


def _hide_start() -> None:
    at = behind_userfaultfd()
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
        print(f'{{"event": "cannot", "why": "{error}"}}', flush=True)
        sys.exit(_CANNOT)
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
