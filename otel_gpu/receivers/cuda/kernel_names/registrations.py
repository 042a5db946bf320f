"""Which kernels do a file's constructors register, under which names?"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import msgspec

from ....errors import ElfError
from ....sandbox.address_spans import MAX_ADDRESS
from ....sandbox.elf import ElfFile
from ....signals.structs import Record
from .blocks import MASK32
from .code_bytes import CodeBytes
from .constants import CallReader
from .constructors import Constructor

_NO_THREAD_LIMIT = 0xFFFF_FFFF
_LAST_CALL = 256  # bytes from where the last fifth argument is set to the end of its call
_WINDOW = 256 << 10


class Registrations(Record):
    """The calls of __cudaRegisterFunction(module, stub, name, name, -1, ...), in parallel arrays."""

    stubs: array[int] = msgspec.field(default_factory=lambda: array("q"))
    names: array[int] = msgspec.field(default_factory=lambda: array("q"))
    """The address of each kernel's name."""
    made_by: array[int] = msgspec.field(default_factory=lambda: array("q"))
    """The functions that make them, each once."""
    skipped: int = 0
    """Calls whose stub is not known or that are beyond the limit."""


def read_registrations(
    constructors: list[Constructor], code: CodeBytes, calls: CallReader, max_kernels: int
) -> Registrations:
    """Return the registrations that constructors make."""
    found = Registrations()
    for constructor in constructors:
        if calls.is_spent:
            break
        data = code.read(constructor.start, min(constructor.end, constructor.last_site + _LAST_CALL))
        for call in calls.calls(data, constructor.start):
            limit, name = call.argument(4), call.argument(3)
            if limit is None or limit & MASK32 != _NO_THREAD_LIMIT or name is None or name != call.argument(2):
                continue
            if not 0 < name < MAX_ADDRESS:
                continue
            stub = call.argument(1)
            if stub is None or not code.holds(stub) or len(found.stubs) >= max_kernels:
                found.skipped += 1
            else:
                found.stubs.append(stub)
                found.names.append(name)
                if not found.made_by or found.made_by[-1] != constructor.start:
                    found.made_by.append(constructor.start)
    return found


def read_strings(elf: ElfFile, addresses: Iterable[int], longest: int) -> Iterator[tuple[int, bytes]]:
    """Yield (address, string) for addresses in ascending order that lie in the file; of what is longer, `longest` + 1."""
    window, start = b"", -1
    for address in addresses:
        if not start <= address <= start + len(window) - longest - 1:
            try:
                offset = elf.to_offset(address)
                window = elf.peek(offset, _WINDOW)
            except ElfError:
                continue
            start = address
        at = address - start
        yield address, window[at : at + longest + 1].partition(b"\0")[0]
