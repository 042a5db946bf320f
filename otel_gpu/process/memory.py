"""What stands at this address of another process? Bounded reads of what the kernel shows as its memory.

What comes back is the target's own claim: every pointer, length and type in it is checked by whoever asked, and whatever
cannot be read is a `MemoryFault`, never a guess. A read may take for ever where the target has put something behind its
addresses that does not answer: it is for a child that can be given up (parser_child.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
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


@contextlib.contextmanager
def memory_of(pid: int) -> Iterator[ProcessMemory]:
    """Open the memory of a process."""
    try:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError) as e:
        raise ProcessGoneError(f"process {pid} is gone") from e
    try:
        yield ProcessMemory(descriptor)
    finally:
        os.close(descriptor)


class ProcessMemory:
    """The memory of one live process, by a descriptor of its `mem`, which whoever opened it closes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes; MemoryFault where they are not mapped, ProcessGoneError after exit."""
        if self._descriptor < 0 or not 0 <= address < _USER_SPACE_END:
            raise MemoryFault(f"{address:#x} is no user-space address")
        try:
            data = os.pread(self._descriptor, size, address)
        except OSError as e:
            raise MemoryFault(f"nothing is mapped at {address:#x}") from e
        # The kernel answers end-of-file once the address space is gone.
        if not data and size:
            raise ProcessGoneError("the process has ended; its memory cannot be read")
        if len(data) != size:
            raise MemoryFault(f"only {len(data)} of {size} bytes are mapped at {address:#x}")
        return data
