"""Which kernel does a host function, a kernel handle or a call site of a CUDA program stand for?

nvcc gives every kernel a host function, its stub, whose address the program passes to `cudaLaunchKernel`, and writes a
constructor that registers (stub, kernel name) with the runtime. Those registrations are constants in the machine code:
read there, they give every name of a file that is stripped, and of a process that runs already.

Programs built since CUDA 12.4 pass a handle instead, which the runtime writes into a static variable once:
`__cudaGetKernel(&variable, stub)`. The variable's address is a constant too, so a process's handles can be read from its
memory; and where that fails, the function that launches names the stub itself.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..elf import EM_AARCH64, EM_X86_64, ElfFile
from .code_bytes import CodeBytes
from .constants import CallReader
from .constructors import find_constructors
from .functions import FunctionTable
from .handle_variables import Mentions, distinct, find_handle_variables
from .loaded_pointers import LoadedPointers
from .references import MAX_REFERENCES, find_references
from .registrations import Registrations, read_registrations, read_strings

MAX_KERNELS = 1_000_000
MAX_NAME = 4_096

_WORD = 8
_MACHINES = (EM_X86_64, EM_AARCH64)
_MAX_NAMES_BYTES = 64 << 20
_MAX_DECODED = 4 << 20  # torch takes 1 MiB, as CallReader counts; 4 s for a file that is made to cost time
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class StubMap:
    """The kernels of one file by link-time address. A library has 20,000, so numbers are packed, in 64 bits each."""

    names: tuple[str, ...] = ()
    """The kernels, in the order of their stubs."""
    packed_stubs: bytes = b""
    packed_handles: bytes = b""
    """The variables that hold handles, sorted, and then as many stubs: those whose kernels' handles they hold."""
    packed_users: bytes = b""
    """Where the functions begin that mention stubs, sorted, one entry for each mention; where they end; the stubs."""
    skipped: int = 0
    """Registrations that were not understood or were beyond a limit, and functions that could not be read."""

    @classmethod
    def of(
        cls,
        names: Mapping[int, str],
        handles: Sequence[Collection[int]] = ((), ()),
        users: Sequence[Collection[int]] = ((), (), ()),
        skipped: int = 0,
    ) -> StubMap:
        """Make a map of names by stub, and of the columns above."""
        stubs = sorted(names)
        return cls(tuple(names[stub] for stub in stubs), _packed(stubs), _packed(*handles), _packed(*users), skipped)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def stubs(self) -> memoryview:
        """The host functions that stand for kernels, sorted."""
        return _unpacked(self.packed_stubs)

    @property
    def handle_variables(self) -> memoryview:
        """The variables that hold kernels' handles, sorted."""
        return _unpacked(self.packed_handles)[: len(self.packed_handles) // (2 * _WORD)]

    def is_sound(self) -> bool:
        """Say whether the columns fit together, as those of a map do that was made here."""
        import numpy as np

        stubs, handles, users = (len(packed) for packed in (self.packed_stubs, self.packed_handles, self.packed_users))
        if stubs != _WORD * len(self.names) or handles % (2 * _WORD) or users % (3 * _WORD):
            return False
        columns = self.stubs, self.handle_variables, _unpacked(self.packed_users)[: users // (3 * _WORD)]
        return all(bool((np.diff(np.asarray(column)) >= 0).all()) for column in columns)

    @property
    def size_bytes(self) -> int:
        """How much memory it takes, about."""
        packed = len(self.packed_stubs) + len(self.packed_handles) + len(self.packed_users)
        return packed + sum(map(sys.getsizeof, self.names))

    def name_of(self, stub: int) -> str | None:
        """Return the kernel name that the stub at this link-time address was registered with."""
        stubs = self.stubs
        at = bisect_left(stubs, stub)
        return self.names[at] if at < len(stubs) and stubs[at] == stub else None

    def handle_name(self, at: int) -> str | None:
        """Return the kernel whose handle a process has in the handle variable of that index."""
        columns = _unpacked(self.packed_handles)
        return self.name_of(columns[len(columns) // 2 + at])

    def names_used_at(self, return_address: int) -> frozenset[str]:
        """Return the kernels whose stubs the function around a call mentions: with exactly one, that was launched."""
        # The call may be the function's last instruction: the address behind it belongs to the next one.
        address = return_address - 1
        columns = _unpacked(self.packed_users)
        count = len(columns) // 3
        starts, ends, stubs = columns[:count], columns[count : 2 * count], columns[2 * count :]
        last = bisect_right(starts, address)
        if last == 0:
            return frozenset()
        first = bisect_left(starts, starts[last - 1])
        found = (self.name_of(stubs[at]) for at in range(first, last) if address < ends[at])
        return frozenset(name for name in found if name is not None)


def read_stub_map(elf: ElfFile) -> StubMap:
    """Read the kernels that a file registers; an empty map for a file without, or for another machine."""
    return _StubReader(elf).read() if elf.machine in _MACHINES else StubMap()


def clean_name(raw: bytes) -> str:
    """Return a kernel name as text that is safe to print and to send: escaped, and cut where it is absurdly long."""
    text = raw[:MAX_NAME].decode("latin-1")
    if not (text.isascii() and text.isprintable()):
        text = _UNPRINTABLE.sub(lambda m: m[0].encode("unicode_escape").decode(), text)
    return text if len(raw) <= MAX_NAME and len(text) <= MAX_NAME else text[: MAX_NAME - 3] + "..."


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


def _packed(*columns: Collection[int]) -> bytes:
    import numpy as np

    return b"".join(np.asarray(column, np.int64).tobytes() for column in columns)


def _unpacked(packed: bytes) -> memoryview:
    return memoryview(packed).cast("q")
