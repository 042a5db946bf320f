"""How is a program placed on a tracepoint of the kernel? By the name that it was loaded for."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_uint32, c_uint64

from ..errors import AttachError
from . import libbpf as lib

_RAW_TRACEPOINT_OPEN = 17


class _RawTracepoint(ctypes.Structure):
    _fields_ = (("name", c_uint64), ("program", c_uint32), ("pad", c_uint32), ("cookie", c_uint64))


class TracepointLinks:
    """Runs tp_btf programs on their tracepoints while it is open."""

    def __init__(self, programs: Sequence[int]) -> None:
        """Attach the programs; AttachError where the kernel refuses."""
        self._programs = tuple(programs)
        self._fds: list[int] = []
        self._open()

    def reopen(self) -> None:
        """Run them behind whatever was placed on their tracepoints since; what happens meanwhile is missed."""
        self.close()
        self._open()

    def close(self) -> None:
        """Detach; idempotent."""
        while self._fds:
            os.close(self._fds.pop())

    def _open(self) -> None:
        try:
            for program in self._programs:
                self._fds.append(lib.bpf(_RAW_TRACEPOINT_OPEN, _RawTracepoint(0, program)))
        except OSError as e:
            self.close()
            raise AttachError(
                f"the scheduler's tracepoints cannot be used: {e.strerror}; run as root or with CAP_BPF and CAP_PERFMON"
            ) from e
