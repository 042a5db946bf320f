"""In which variable of a file does the runtime keep the handle of which kernel?

Since CUDA 12.4 the function that launches a kernel asks for its handle once: `__cudaGetKernel(&variable, stub)`. It is
known by its arguments, the addresses of a static variable and of a stub.

PyTorch's largest library mentions stubs 40,000 times. On x86-64 most of these calls are the same three instructions,
which are read many at a time; of the other mentions those are decoded that have a variable's address taken near them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ....errors import ElfError
from ....sandbox.address_spans import MAX_ADDRESS, Span, Spans
from ....sandbox.elf import EM_AARCH64, EM_X86_64, PT_LOAD, ElfFile
from ....signals.structs import Frozen, Record
from .code_bytes import CodeBytes
from .constants import CallReader
from .functions import read_code
from .loaded_pointers import LoadedPointers
from .references import CHUNK, OVERLAP, int32, pointers

_PF_W = 2
_NEAR = 64
"""Bytes from the first instruction that prepares a call to the last."""
_MAX_STRINGS = 64 << 20  # torch's take 5 MiB
_LEA_RDI, _LEA_RSI, _CALL = b"\x48\x8d\x3d", b"\x48\x8d\x35", b"\xe8"
_LEA_SIZE, _CALL_SIZE = 7, 5
_BR_X16 = b"\x00\x02\x1f\xd6"
_VENEER_SIZE = 12
_MAX_CALLEES = 4096
"""Functions that are looked at for being veneers; a library has one or two."""


class Mentions(Frozen):
    """The instructions that mention stubs, sorted, and the functions that they are in, in parallel arrays."""

    starts: Any
    ends: Any
    sites: Any
    stubs: Any

    def of(self, which: Any) -> Mentions:
        """Return some of them."""
        return Mentions(self.starts[which], self.ends[which], self.sites[which], self.stubs[which])


def find_handle_variables(
    elf: ElfFile, mentions: Mentions, code: CodeBytes, calls: CallReader, loaded: LoadedPointers
) -> tuple[Any, Any]:
    """Return (variables, the stub of each) for the kernels whose handles are asked for where their stubs are mentioned."""
    import numpy as np

    if _imports(elf, b"cudaLaunchKernel") and not _imports(elf, b"__cudaGetKernel"):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    writable = (s for s in elf.segments if s.type == PT_LOAD and s.flags & _PF_W)
    variables = Spans([Span(s.vaddr, s.vaddr + s.mem_size) for s in writable])
    calls_found = _Calls()
    taken = [np.zeros(0, np.int64)]
    is_open = np.ones(len(mentions.sites), bool)
    for vaddr, data in read_code(elf, CHUNK, OVERLAP):
        first, last = np.searchsorted(mentions.sites, [vaddr, vaddr + CHUNK])
        if first < last:
            at = _takes_variable(elf, vaddr, data, variables, loaded)
            taken.append(at[_near(at, mentions.sites)])
            if elf.machine == EM_X86_64:
                is_open[first:last] = ~_read_plain(mentions.of(slice(first, last)), vaddr, data, variables, calls_found)
    at = np.sort(np.concatenate(taken))
    others = mentions.of(is_open)
    _decode(others.of(_near(others.sites, at)), at, variables, code, calls, calls_found)
    return calls_found.handles(elf)


class _Calls(Record):
    """The calls that may be those of __cudaGetKernel: what is called, a variable and a stub, in parallel arrays."""

    callees: list[Any] = msgspec.field(default_factory=list)
    variables: list[Any] = msgspec.field(default_factory=list)
    stubs: list[Any] = msgspec.field(default_factory=list)

    def add(self, callees: Any, variables: Any, stubs: Any) -> None:
        """Add calls."""
        self.callees.append(callees)
        self.variables.append(variables)
        self.stubs.append(stubs)

    def handles(self, elf: ElfFile) -> tuple[Any, Any]:
        """Return (variables, stubs), by variable.

        Other functions take (pointer, stub) as well, hardly ever with a static variable: the commonest callee it is.
        A variable that two stubs are said to share tells nothing.
        """
        import numpy as np

        nothing = [np.zeros(0, np.int64)]
        callees, variables, stubs = (np.concatenate(nothing + c) for c in (self.callees, self.variables, self.stubs))
        if not len(callees):
            return variables, stubs
        different, which = np.unique(callees, return_inverse=True)
        if elf.machine == EM_AARCH64:
            final = [_behind_veneer(elf, callee) for callee in different[:_MAX_CALLEES].tolist()]
            which = np.unique([*final, *different[_MAX_CALLEES:]], return_inverse=True)[1][which]
        its = which == np.bincount(which[distinct(which, variables)]).argmax()
        variables, stubs = variables[its], stubs[its]
        pairs = distinct(variables, stubs)
        _, first, times = np.unique(variables[pairs], return_index=True, return_counts=True)
        said_once = pairs[first[times == 1]]
        return variables[said_once], stubs[said_once]


def distinct(left: Any, right: Any) -> Any:
    """Return the indices of pairs that are all different, in the order of the pairs."""
    import numpy as np

    order = np.lexsort((right, left))
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(left[order]) != 0) | (np.diff(right[order]) != 0)
    return order[is_new]


def _behind_veneer(elf: ElfFile, function: int) -> int:
    """Return where a function goes that does nothing but `adrp x16; add x16; br x16`: linkers put them in between."""
    try:
        code = elf.read_vaddr(function, _VENEER_SIZE)
    except ElfError:
        return function
    if code[-len(_BR_X16) :] != _BR_X16:
        return function
    targets = [pointed for _, pointed in pointers(elf, function, code, loads=False) if len(pointed)]
    return int(targets[0][0]) if targets else function


def _takes_variable(elf: ElfFile, vaddr: int, data: bytes, variables: Spans, loaded: LoadedPointers) -> Any:
    """Return the instructions that take the address of a variable, or load it where the loader wrote it."""
    import numpy as np

    taken = [at[variables.hold(pointed)] for at, pointed in pointers(elf, vaddr, data, loads=False)]
    for at, slot in pointers(elf, vaddr, data, loads=True):
        where, value = loaded.values_at(slot)
        taken.append(at[where[variables.hold(value)]])
    return np.concatenate([np.zeros(0, np.int64), *taken])


def _near(addresses: Any, others: Any) -> Any:
    """Say which addresses have one of the others, which are sorted, near."""
    import numpy as np

    following = np.append(others, np.iinfo(np.int64).max)[np.searchsorted(others, addresses - _NEAR)]
    return following <= addresses + _NEAR


def _read_plain(mentions: Mentions, vaddr: int, data: bytes, variables: Spans, found: _Calls) -> Any:
    """Add the calls `lea rdi, variable; lea rsi, stub; call`, the first two in any order; say which mentions they are."""
    import numpy as np

    code = np.frombuffer(data, np.uint8)
    is_found = np.zeros(len(mentions.sites), bool)
    at = mentions.sites - vaddr
    for before, behind in ((_LEA_SIZE, 0), (0, _LEA_SIZE)):
        # Where the variable's address is taken, and where the call is.
        first, call = at - before + behind, at + _LEA_SIZE + behind
        which = np.flatnonzero(
            (mentions.sites - before >= mentions.starts)
            & (first >= 0)
            & (mentions.sites + _LEA_SIZE + behind + _CALL_SIZE <= mentions.ends)
            & (call + _CALL_SIZE <= len(code))
        )
        which = which[
            _is(code, at[which], _LEA_RSI) & _is(code, first[which], _LEA_RDI) & _is(code, call[which], _CALL)
        ]
        first, call = first[which], call[which]
        variable = vaddr + first + _LEA_SIZE + int32(code, first + len(_LEA_RDI))
        callee = vaddr + call + _CALL_SIZE + int32(code, call + len(_CALL))
        named = vaddr + at[which] + _LEA_SIZE + int32(code, at[which] + len(_LEA_RSI))
        fits = variables.hold(variable) & (named == mentions.stubs[which])
        found.add(callee[fits], variable[fits], mentions.stubs[which[fits]])
        is_found[which[fits]] = True
    return is_found


def _is(code: Any, at: Any, instruction: bytes) -> Any:
    import numpy as np

    return np.logical_and.reduce([code[at + offset] == byte for offset, byte in enumerate(instruction)])


def _decode(
    mentions: Mentions, taken: Any, variables: Spans, code: CodeBytes, calls: CallReader, found: _Calls
) -> None:
    """Add the calls whose arguments are put together otherwise, from an instruction in `taken` on or from the mention."""
    import numpy as np

    stubs = set(mentions.stubs.tolist())
    rows = []
    firsts = np.searchsorted(taken, np.maximum(mentions.starts, mentions.sites - _NEAR))
    lasts = np.searchsorted(taken, mentions.sites)
    columns = (mentions.starts, mentions.ends, mentions.sites, firsts, lasts)
    for start, end, site, first, last in zip(*(memoryview(column) for column in columns), strict=True):
        if calls.is_spent:
            break
        begin = max(start, site - _NEAR)
        data = code.read(begin, min(end, site + _NEAR))
        for at in (*taken[first:last].tolist(), site):
            call = next((call for call in calls.calls(data, begin, at - begin) if call.address >= site), None)
            if call is None:
                continue
            variable, stub = call.argument(0), call.argument(1)
            if variable is None or stub not in stubs or not 0 <= variable < MAX_ADDRESS:
                continue
            if variables.hold(np.array([variable])).all():
                rows.append((call.callee, variable, stub))
                break
    found.add(*np.array(rows, np.int64).reshape(-1, 3).T)


def _imports(elf: ElfFile, name: bytes) -> bool:
    section = elf.section(".dynstr")
    if section is None or section.size > _MAX_STRINGS:
        return False
    return b"\0" + name + b"\0" in elf.section_data(section)
