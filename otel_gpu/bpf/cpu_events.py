"""How is the CPU sampled? One timer event a CPU, which runs a program at each tick."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_int32, c_uint32, c_uint64

from ..errors import AttachError
from . import libbpf as lib

_SOFTWARE, _CPU_CLOCK = 1, 0
_FREQUENCY = 1 << 10
_IOC_ENABLE, _IOC_SET_BPF = 0x2400, 0x40042408
_CLOEXEC = 8


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("type", c_uint32),
        ("size", c_uint32),
        ("config", c_uint64),
        ("frequency", c_uint64),
        ("sample_type", c_uint64),
        ("read_format", c_uint64),
        ("flags", c_uint64),
        ("more", c_uint32 * 18),
    )


class CpuSampler:
    """Runs a perf_event program at a fixed rate on every CPU while it is open."""

    def __init__(self, program: int, hertz: int) -> None:
        """Start sampling; AttachError where the kernel refuses."""
        import fcntl

        self._fds: list[int] = []
        for cpu in range(os.cpu_count() or 1):
            attributes = _Attributes(
                type=_SOFTWARE,
                size=ctypes.sizeof(_Attributes),
                config=_CPU_CLOCK,
                frequency=hertz,
                flags=_FREQUENCY,
            )
            try:
                fd = lib.syscall(
                    lib.SYS_PERF_EVENT_OPEN[lib.machine()],
                    ctypes.byref(attributes),
                    c_int32(-1),
                    c_int32(cpu),
                    c_int32(-1),
                    c_uint64(_CLOEXEC),
                )
                self._fds.append(fd)
                fcntl.ioctl(fd, _IOC_SET_BPF, program)
                fcntl.ioctl(fd, _IOC_ENABLE, 0)
            except OSError as e:
                self.close()
                raise AttachError(f"CPU {cpu} cannot be sampled: {e.strerror}; run as root or with CAP_PERFMON") from e

    def close(self) -> None:
        """Stop sampling; idempotent."""
        while self._fds:
            os.close(self._fds.pop())
