"""Which kernels does this library register, from the cache where it knows?"""

from __future__ import annotations

from ..elf import ElfFile
from .cache import SymbolCache
from .stubs import StubMap, read_stub_map

_KIND = "stubs-1"


def stub_map_of(elf: ElfFile, cache: SymbolCache | None = None) -> StubMap:
    """Return a file's stub map; `cache` spares reading all of its code again."""
    if cache is None:
        return read_stub_map(elf)
    known = cache.read(elf, _KIND, StubMap)
    if known is None:
        known = read_stub_map(elf)
        cache.write(elf, _KIND, known)
    return known
