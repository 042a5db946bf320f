"""What stands at this address of another process? Bounded reads through /proc/PID/mem.

What comes back is the target's own claim: every pointer, length and type in it is checked by whoever
asked, and whatever cannot be read is a `MemoryFault`, never a guess.
"""

from __future__ import annotations

import os
from typing import Protocol

from ..errors import OtelGpuError, ProcessGoneError

_USER_SPACE_END = 1 << 56
"""Above every user address of x86-64 (also with five-level paging) and arm64; pread takes no larger offset."""


class MemoryFault(OtelGpuError):
    """An address of the target cannot be read: unmapped, freed, or never a pointer."""


class Memory(Protocol):
    """Anything whose bytes can be read by address."""

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes; raises MemoryFault where they are not all there."""
        ...


class ProcessMemory:
    """The memory of one live process. Use as a context manager, or close it."""

    def __init__(self, pid: int) -> None:
        """Open the memory of `pid`; needs the right to ptrace it (same user or CAP_SYS_PTRACE)."""
        self.pid = pid
        try:
            self._fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as e:
            raise ProcessGoneError(f"process {pid} has ended; its memory cannot be read") from e
        except PermissionError as e:
            raise MemoryFault(f"memory of process {pid} is closed to this user: give otel-gpu CAP_SYS_PTRACE") from e

    def __enter__(self) -> ProcessMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the memory file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes; MemoryFault where they are not mapped, ProcessGoneError after exit."""
        if not 0 <= address < _USER_SPACE_END:
            raise MemoryFault(f"{address:#x} is no user-space address")
        try:
            data = os.pread(self._fd, size, address)
        except OSError as e:
            raise MemoryFault(f"process {self.pid}: nothing is mapped at {address:#x}") from e
        # The kernel answers end-of-file once the address space is gone.
        if not data and size:
            raise ProcessGoneError(f"process {self.pid} has ended; its memory cannot be read")
        if len(data) != size:
            raise MemoryFault(f"process {self.pid}: only {len(data)} of {size} bytes are mapped at {address:#x}")
        return data
