"""How is the CPU sampled? One timer event a CPU, which runs a program at each tick."""

from __future__ import annotations

import os

from ..errors import AttachError
from .perf_event import CPU_CLOCK, IOC_ENABLE, IOC_SET_BPF, SOFTWARE, PerfEventAttributes, open_on_each_cpu, right

_FREQUENCY = 1 << 10
"""The flag `freq`: the period is a rate."""


class CpuSampler:
    """Runs a perf_event program at a fixed rate on every CPU while it is open."""

    def __init__(self, program: int, hertz: int) -> None:
        """Start sampling; AttachError where the kernel refuses."""
        import fcntl

        self._fds: list[int] = []
        attributes = PerfEventAttributes(type=SOFTWARE, config=CPU_CLOCK, period=hertz, flags=_FREQUENCY)
        try:
            for fd in open_on_each_cpu(attributes):
                self._fds.append(fd)
                fcntl.ioctl(fd, IOC_SET_BPF, program)
                fcntl.ioctl(fd, IOC_ENABLE, 0)
        except OSError as e:
            self.close()
            raise AttachError(f"the CPUs cannot be sampled: {e.strerror}; {right()}") from e

    def close(self) -> None:
        """Stop sampling; idempotent."""
        while self._fds:
            os.close(self._fds.pop())
