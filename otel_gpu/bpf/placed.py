"""Which programs are placed on which code right now, by any process? The kernel's list of links.

Asked of the kernel and not of an agent, so that `otel-gpu inspect` needs none of its own: CAP_SYS_ADMIN, and
Linux 6.6 (perf links) or 6.8 (multi links).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import c_uint32, c_uint64

from ..signals.structs import Frozen
from . import libbpf as lib

_PROG_FD_BY_ID, _INFO_BY_FD, _LINK_FD_BY_ID, _LINK_NEXT_ID = 13, 15, 30, 31
_LINK_PERF_EVENT, _LINK_UPROBE_MULTI = 7, 12
_PERF_UPROBE, _PERF_URETPROBE = 1, 2
_PROG_NAME_AT, _PROG_NAME_SIZE, _PROG_INFO_SIZE = 64, 16, 80
_MAX_SITES, _MAX_PATH, _MAX_LINKS = 4096, 4096, 100_000


class PlacedProgram(Frozen):
    """One program on one site of a file."""

    program: str
    """As the kernel keeps it: at most 15 characters."""
    path: str
    offset: int


class _NextId(ctypes.Structure):
    _fields_ = (("start", c_uint32), ("next", c_uint32), ("flags", c_uint32))


class _InfoRequest(ctypes.Structure):
    _fields_ = (("fd", c_uint32), ("length", c_uint32), ("info", c_uint64))


class _Multi(ctypes.Structure):
    _fields_ = (
        ("path", c_uint64),
        ("offsets", c_uint64),
        ("ref_ctr_offsets", c_uint64),
        ("cookies", c_uint64),
        ("path_size", c_uint32),
        ("count", c_uint32),
        ("flags", c_uint32),
        ("pid", c_uint32),
    )


class _Perf(ctypes.Structure):
    _fields_ = (
        ("type", c_uint32),
        ("pad", c_uint32),
        ("name", c_uint64),
        ("name_size", c_uint32),
        ("offset", c_uint32),
        ("cookie", c_uint64),
        ("ref_ctr_offset", c_uint64),
    )


class _Kinds(ctypes.Union):
    _fields_ = (("multi", _Multi), ("perf", _Perf))


class _LinkInfo(ctypes.Structure):
    _fields_ = (("type", c_uint32), ("id", c_uint32), ("program", c_uint32), ("pad", c_uint32), ("of", _Kinds))


def placed_programs() -> Iterator[PlacedProgram]:
    """Yield what is placed on user code; OSError where the kernel does not tell."""
    request = _NextId()
    for _ in range(_MAX_LINKS):
        try:
            lib.bpf(_LINK_NEXT_ID, request)
        except FileNotFoundError:
            return
        try:
            yield from _sites(request.next)
        except FileNotFoundError:
            pass  # closed since it was listed
        request.start = request.next


def _sites(link: int) -> Iterator[PlacedProgram]:
    fd = lib.bpf(_LINK_FD_BY_ID, _NextId(link))
    try:
        info = _LinkInfo()
        _ask(fd, info)
        path = ctypes.create_string_buffer(_MAX_PATH)
        if info.type == _LINK_UPROBE_MULTI:
            offsets = (c_uint64 * _MAX_SITES)()
            asked = _Multi(ctypes.addressof(path), ctypes.addressof(offsets), path_size=_MAX_PATH, count=_MAX_SITES)
            info.of.multi = asked
            _ask(fd, info)
            found = offsets[: info.of.multi.count]
        elif info.type == _LINK_PERF_EVENT and info.of.perf.type in (_PERF_UPROBE, _PERF_URETPROBE):
            info.of.perf = _Perf(name=ctypes.addressof(path), name_size=_MAX_PATH)
            _ask(fd, info)
            found = [info.of.perf.offset]
        else:
            return
        program = _program_name(info.program)
    finally:
        os.close(fd)
    for offset in found:
        yield PlacedProgram(program, os.fsdecode(path.value), offset)


def _ask(fd: int, info: ctypes.Structure | ctypes.Array[ctypes.c_char]) -> None:
    lib.bpf(_INFO_BY_FD, _InfoRequest(fd, ctypes.sizeof(info), ctypes.addressof(info)))


def _program_name(program: int) -> str:
    fd = lib.bpf(_PROG_FD_BY_ID, _NextId(program))
    try:
        info = ctypes.create_string_buffer(_PROG_INFO_SIZE)
        _ask(fd, info)
    finally:
        os.close(fd)
    return info.raw[_PROG_NAME_AT:][:_PROG_NAME_SIZE].partition(b"\0")[0].decode("ascii", "replace")
