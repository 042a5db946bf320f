"""How is a program of the kernel's called like a function? Raw tracepoint programs can be, since 5.10."""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64

from . import libbpf as lib

_TEST_RUN = 10


class _TestRun(ctypes.Structure):
    """What of union bpf_attr's `test` says which program is run, and with which arguments."""

    _fields_ = (
        ("program", c_uint32),
        ("result", c_uint32),
        ("data_sizes", c_uint32 * 2),
        ("data", c_uint64 * 2),
        ("repeat", c_uint32),
        ("duration", c_uint32),
        ("context_size", c_uint32),
        ("context_size_out", c_uint32),
        ("context", c_uint64),
        ("context_out", c_uint64),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch_size", c_uint32),
        ("pad", c_uint32),
    )


def run_once(program: int, *arguments: int) -> None:
    """Run a raw tracepoint program, given by its descriptor, with these arguments; OSError when refused."""
    values = (c_uint64 * len(arguments))(*arguments)
    lib.bpf(
        _TEST_RUN,
        _TestRun(program=program, context=ctypes.addressof(values), context_size=ctypes.sizeof(values)),
    )
