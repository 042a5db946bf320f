"""Which kernel does a host function, a kernel handle or a call site of a CUDA program stand for?

nvcc gives every kernel a host function, its stub, whose address the program passes to `cudaLaunchKernel`, and writes a
constructor that registers (stub, kernel name) with the runtime. Those registrations are constants in the machine code:
read there, they give every name of a file that is stripped, and of a process that runs already.

Programs built since CUDA 12.4 pass a handle instead, which the runtime writes into a static variable once:
`__cudaGetKernel(&variable, stub)`. The variable's address is a constant too, so a process's handles can be read from its
memory; and where that fails, the function that launches names the stub itself.
"""

from __future__ import annotations

from typing import Any

from ....sandbox.elf import EM_AARCH64, EM_X86_64, ElfFile
from .code_bytes import CodeBytes
from .constants import CallReader
from .constructors import find_constructors
from .functions import FunctionTable
from .handle_variables import Mentions, distinct, find_handle_variables
from .loaded_pointers import LoadedPointers
from .references import MAX_REFERENCES, find_references
from .registrations import Registrations, read_registrations, read_strings
from .stub_map import MAX_KERNELS, MAX_NAME, StubMap, clean_name

_MACHINES = (EM_X86_64, EM_AARCH64)
_MAX_NAMES_BYTES = 64 << 20
_MAX_DECODED = 4 << 20  # torch takes 1 MiB, as CallReader counts; 4 s for a file that is made to cost time


def read_stub_map(elf: ElfFile) -> StubMap:
    """Read the kernels that a file registers; an empty map for a file without, or for another machine."""
    return _StubReader(elf).read() if elf.machine in _MACHINES else StubMap()


class _StubReader:
    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._functions = FunctionTable(elf)
        self._pointers = LoadedPointers(elf)
        self._code = CodeBytes(elf)
        self._calls = CallReader(elf.machine, self._pointers.read, _MAX_DECODED)
        self._skipped = 0

    def read(self) -> StubMap:
        import numpy as np

        constructors, self._skipped = find_constructors(self._elf, self._functions, self._pointers)
        registrations = read_registrations(constructors, self._code, self._calls, MAX_KERNELS)
        names = self._names(registrations)
        mentions = self._mentions(np.array(sorted(names), np.int64), np.array(registrations.made_by, np.int64))
        handles = find_handle_variables(self._elf, mentions, self._code, self._calls, self._pointers)
        which = distinct(mentions.starts, mentions.stubs)
        users = mentions.starts[which], mentions.ends[which], mentions.stubs[which]
        refused = self._code.refused + self._calls.refused + self._pointers.refused
        return StubMap.of(names, handles, users, self._skipped + refused)

    def _names(self, registrations: Registrations) -> dict[int, str]:
        """Return the kernels' names by stub."""
        left = _MAX_NAMES_BYTES
        texts: dict[int, str] = {}
        cut: set[int] = set()
        for address, raw in read_strings(self._elf, sorted(set(registrations.names)), MAX_NAME):
            left -= len(raw)
            if raw and left >= 0:
                texts[address] = clean_name(raw)
            elif raw:
                cut.add(address)
        self._skipped += registrations.skipped + sum(name in cut for name in registrations.names)
        found = zip(registrations.stubs, registrations.names, strict=True)
        return {stub: texts[name] for stub, name in found if name in texts}

    def _mentions(self, stubs: Any, constructors: Any) -> Mentions:
        """Find where the stubs are mentioned, but for the functions that register them."""
        import numpy as np

        sites, mentioned = find_references(self._elf, stubs)
        slots, held = self._pointers.slots_of(stubs)
        if len(slots):
            loads, read = find_references(self._elf, slots, loads=True)
            sites = np.concatenate([sites, loads])
            mentioned = np.concatenate([mentioned, held[np.searchsorted(slots, read)]])
        self._skipped += len(sites) >= MAX_REFERENCES
        order = np.lexsort((mentioned, sites))
        sites, mentioned = sites[order], mentioned[order]
        functions = self._functions.containing(sites)
        kept = functions.held & ~np.isin(functions.starts, constructors)
        return Mentions(functions.starts, functions.ends, sites, mentioned).of(kept)
