"""What does a program say of each thread of a process? It is run over them, and what it writes is read like a file."""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import c_uint32, c_uint64

from . import libbpf as lib
from .links import LINK_CREATE

_ITER_CREATE = 33
_TRACE_ITER = 28
_AT_ONCE = 1 << 16


class _Threads(ctypes.Structure):
    """What of union bpf_iter_link_info chooses threads (6.1); numbers of the caller's pid namespace."""

    _fields_ = (("tid", c_uint32), ("pid", c_uint32), ("pid_fd", c_uint32), ("pad", c_uint32))


class _IteratorLink(ctypes.Structure):
    _fields_ = (
        ("prog_fd", c_uint32),
        ("target_fd", c_uint32),
        ("attach_type", c_uint32),
        ("flags", c_uint32),
        ("info", c_uint64),
        ("info_size", c_uint32),
        ("pad", c_uint32),
    )


class _Iterator(ctypes.Structure):
    _fields_ = (("link_fd", c_uint32), ("flags", c_uint32))


def ask_threads(program: int, *, pid: int = 0, tid: int = 0) -> bytes:
    """Run a program over the threads of a process, or over one thread; OSError when there are none."""
    chosen = _Threads(tid, pid)
    return _said(_IteratorLink(program, 0, _TRACE_ITER, 0, ctypes.addressof(chosen), ctypes.sizeof(chosen)))


def ask_leader(program: int, pid: int) -> bytes:
    """Run a program over the first thread of a process; below 6.1 over every thread that there is."""
    try:
        return ask_threads(program, tid=pid)
    except OSError as e:
        if e.errno not in _CHOOSES_NOT:
            raise
    return ask_all(program)


def ask_all(program: int) -> bytes:
    """Run a program over every thread that there is."""
    return _said(_IteratorLink(program, 0, _TRACE_ITER))


_CHOOSES_NOT = (errno.E2BIG, errno.EINVAL)
"""Errors of kernels that let nobody choose threads."""


def _said(request: _IteratorLink) -> bytes:
    link = lib.bpf(LINK_CREATE, request)
    try:
        answer = lib.bpf(_ITER_CREATE, _Iterator(link))
    finally:
        os.close(link)
    try:
        said = bytearray()
        while part := os.read(answer, _AT_ONCE):
            said += part
        return bytes(said)
    finally:
        os.close(answer)
