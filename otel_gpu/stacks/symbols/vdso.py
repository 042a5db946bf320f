"""What are the functions of the kernel's vDSO called? It has no file, and is the same in all processes: this one's is read."""

from __future__ import annotations

from functools import cache

from ...errors import ElfError
from ...sandbox.elf import ElfFile
from ...signals.profiles import FileMapping, Frame, FrameKind
from ..unwind.address_space import own_vdso
from .function_index import FunctionIndex
from .native import NativeSymbols

_MAPPING = FileMapping("[vdso]")


def vdso_frame(address: int, *, is_return: bool) -> Frame:
    """Return the frame at a link-time address of the vDSO."""
    name, known = "", _symbols()
    if known is not None:
        symbols, index = known
        (found,) = index.find([address - is_return])
        name = "" if found is None else symbols.name(found.name)
    return Frame(FrameKind.NATIVE, name, mapping=_MAPPING, address=address - is_return)


@cache
def _symbols() -> tuple[NativeSymbols, FunctionIndex] | None:
    try:
        symbols = NativeSymbols(ElfFile.from_bytes(own_vdso(), _MAPPING.path))
    except ElfError:
        return None
    return symbols, symbols.index()
