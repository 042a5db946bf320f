"""Which unwinding rows does a file's `.eh_frame` amount to?"""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import numpy.typing as npt

from ...bpf.abi.unwinding import UNWIND_ROW, RowKind
from ...sandbox.elf import EM_X86_64, PF_X, PT_LOAD, ElfFile
from .programs import EXPRESSION, RBP, RETURN_SAVED, RETURN_UNDEFINED, RSP, UNSET, Initial, Rules, execute
from .records import Bools, Bytes, FrameRecords, FrameSection, Ints, Programs, read_records
from .rows import RBP_AT_RBP, UnwindError, UnwindTable

_CHUNK = 1 << 18
"""Bytes of the section executed at a time: bounds the working memory."""
_MAX_ROWS = 1 << 24
_ENTRY = 64
"""Bytes that a hand-written entry point has."""
_PADDING = 16
"""Functions are aligned to this; a shorter hole before an aligned function is padding, not code without rules."""


def compile_table(elf: ElfFile) -> UnwindTable:
    """Compile all frame descriptions of a file; UnwindError where that cannot be done."""
    base = _base(elf)
    return _compile(elf, base, read_records(elf), has_entry=True)


def compile_part(elf: ElfFile, section: FrameSection, functions: Ints) -> UnwindTable:
    """Compile some of a file's frame descriptions, by their offsets in the section."""
    base = _base(elf)
    return _compile(elf, base, _side_by_side(read_records(elf, section, functions)), has_entry=False)


def _side_by_side(records: FrameRecords) -> FrameRecords:
    """Put programs side by side that lie scattered over the section: what lies between them would be looked at too."""
    of_cies, cies = _gathered(records.data, records.cies)
    of_functions, functions = _gathered(records.data, records.functions)
    begin, end = functions.begin + of_cies.size, functions.end + of_cies.size
    return dataclasses.replace(
        records,
        data=np.concatenate([of_cies, of_functions]),
        cies=cies,
        functions=Programs(begin, end, functions.code_align, functions.data_align),
    )


def _base(elf: ElfFile) -> int:
    """Return the address that rows count from; UnwindError where rows cannot reach all of the file's code."""
    if elf.machine != EM_X86_64:
        raise UnwindError(f"{elf.path}: unwinding tables are made for x86-64 only, this is machine {elf.machine}")
    base = min((s.vaddr for s in elf.segments if s.type == PT_LOAD), default=0)
    top = max((s.vaddr + s.mem_size for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X), default=0)
    if top - base >= 1 << 32:
        raise UnwindError(f"{elf.path}: its code spans {top - base:#x} bytes; 32-bit rows reach 4 GiB")
    return base


def _compile(elf: ElfFile, base: int, records: FrameRecords, *, has_entry: bool) -> UnwindTable:
    skipped = Counter(records.skipped)
    limit, order = _disjoint(records, skipped)
    initial, cie_bad = _initial_rules(records)
    bad = cie_bad[records.function_cie]
    rows = _rows_of_functions(records, initial, limit, base, bad)
    skipped["its program is malformed"] += int(np.count_nonzero(bad & (limit > records.start)))
    rows.append(_ends(records.start[order] - base, limit[order] - base))
    end_pc = int(limit[order[-1]]) - base if order.size else 0
    for pc, kind in _entry(elf, records.start[order], limit[order]) if has_entry else ():
        rows.append(_pack(np.array([pc - base], np.int64), np.array([kind])))
        end_pc = max(end_pc, pc - base)
    functions = int(np.count_nonzero(~bad & (limit > records.start)))
    # What is not needed any more goes first: this is where the most memory is in use.
    del records, initial, limit, order
    halves = np.concatenate(rows)
    rows.clear()
    return UnwindTable(_merge(halves).view(UNWIND_ROW), end_pc, functions, dict(+skipped))


def _disjoint(records: FrameRecords, skipped: Counter[str]) -> tuple[Ints, Ints]:
    """Cut functions off where the next one begins; return their ends and the order of those left."""
    order = np.lexsort((np.arange(records.start.size), records.start))
    start = records.start[order]
    limit = records.stop.copy()
    if order.size:
        limit[order[:-1]] = np.minimum(limit[order[:-1]], start[1:])
        # The same start twice: the first one has been cut to nothing, and the later one holds.
        skipped["it overlaps another"] += int(np.count_nonzero(limit < records.stop))
        order = order[limit[order] > start]
    return limit, order


def _initial_rules(records: FrameRecords) -> tuple[Rules, Bools]:
    """Execute the CIEs' programs: what each leaves is what its functions begin with."""
    number = records.cies.begin.size
    zero = np.zeros(number, np.int64)
    if not number:
        return Rules(zero, zero, zero, zero, zero, zero), np.zeros(0, bool)
    limit = np.ones(number, np.int64)
    rules, bad = execute(
        *_gathered(records.data, records.cies), Initial(zero, limit, zero + UNSET, zero, zero, zero + RETURN_SAVED)
    )
    bad = bad.copy()
    bad[np.setdiff1d(np.arange(number), rules.program)] = True
    columns = [zero.copy() for _ in range(4)]
    found = (rules.cfa_register, rules.cfa_offset, rules.rbp, rules.return_address)
    for column, values in zip(columns, found, strict=True):
        column[rules.program] = values
    return Rules(np.arange(number), zero, *columns), bad


def _gathered(data: Bytes, programs: Programs) -> tuple[Bytes, Programs]:
    """Copy a few programs out of the section, one behind the other."""
    parts = [data[:0]]
    for begin, end in zip(programs.begin.tolist(), programs.end.tolist(), strict=True):
        parts += [np.zeros(1, np.uint8), data[begin:end]]
    size = programs.end - programs.begin
    end = np.cumsum(size + 1)
    return np.concatenate(parts), Programs(end - size, end, programs.code_align, programs.data_align)


def _rows_of_functions(records: FrameRecords, initial: Rules, limit: Ints, base: int, bad: Bools) -> list[Ints]:
    """Execute all functions, chunk by chunk; marks malformed ones in `bad`."""
    rows: list[Ints] = []
    total, first, number = 0, 0, records.start.size
    ends = records.functions.end
    while first < number:
        reach = int(records.functions.begin[first]) + _CHUNK
        last = max(first + 1, int(np.searchsorted(ends, reach, side="right")))
        part = slice(first, last)
        cie = records.function_cie[part]
        functions = records.functions
        rules, malformed = execute(
            records.data,
            Programs(
                functions.begin[part], functions.end[part], functions.code_align[part], functions.data_align[part]
            ),
            Initial(
                records.start[part] - base,
                limit[part] - base,
                initial.cfa_register[cie],
                initial.cfa_offset[cie],
                initial.rbp[cie],
                initial.return_address[cie],
            ),
        )
        good = ~bad[part][rules.program]
        rows.append(_encode(rules, records.cie_signal[cie][rules.program])[good])
        bad[part] |= malformed
        lost = np.flatnonzero(bad[part] & (limit[part] > records.start[part])) + first
        rows.append(_pack(records.start[lost] - base, np.full(lost.size, RowKind.UNSUPPORTED)))
        total += rows[-2].size + rows[-1].size
        if total > _MAX_ROWS:
            raise UnwindError(f"more than {_MAX_ROWS} unwinding rows in one file are not believable")
        first = last
    return rows


def _encode(rules: Rules, is_signal: Bools) -> Ints:
    """Turn rules into rows."""
    register, offset, rbp = rules.cfa_register, rules.cfa_offset, rules.rbp
    by_expression = register >= EXPRESSION
    kind = np.where(register == RSP, RowKind.SP, np.where(register == RBP, RowKind.FP, RowKind.UNSUPPORTED))
    short = (offset >= -32768) & (offset < 32768)
    large = (register == RSP) & ~short & (offset > 0) & (offset % 8 == 0) & (offset < 8 * 65536)
    kind = np.where(large, RowKind.SP_LARGE, np.where(short, kind, RowKind.UNSUPPORTED))
    kind = np.where(by_expression, register >> 16 & 0xFF, kind)
    offset = np.where(by_expression, register & 0xFFFF, np.where(large, offset // 8, offset))
    # gcc leaves "rbp is saved where rbp points" standing after the leave that ends it; by then rsp gives the CFA.
    rbp = np.where((rbp == RBP_AT_RBP) & (register == RSP), 0, rbp)
    saved = rbp // 8
    fits = (rbp == 0) | (rbp == RBP_AT_RBP) | ((rbp % 8 == 0) & (saved >= -128) & (saved < 0))
    kind = np.where(fits & (rules.return_address == RETURN_SAVED), kind, RowKind.UNSUPPORTED)
    kind = np.where(rules.return_address == RETURN_UNDEFINED, RowKind.OUTERMOST, kind)
    kind = np.where(is_signal, RowKind.SIGNAL, kind)
    # Equal rules must be equal rows, so that neighbours merge.
    plain = (kind == RowKind.UNSUPPORTED) | (kind == RowKind.OUTERMOST) | (kind == RowKind.SIGNAL)
    offset = np.where(plain, 0, offset)
    saved = np.where(plain, 0, np.where(rbp == RBP_AT_RBP, RBP_AT_RBP, saved))
    return _pack(rules.pc, kind) | (offset & 0xFFFF) | (saved & 0xFF) << 24


def _pack(pc: Ints, kind: Ints) -> Ints:
    """Make rows with the halves exchanged, so that they sort by pc."""
    return pc << 32 | kind.astype(np.int64) << 16


def _ends(start: Ints, limit: Ints) -> Ints:
    """Return END rows for the holes between functions."""
    if not start.size:
        return start
    following = np.append(start[1:], np.int64(1) << 40)
    hole = following - limit
    at = limit[(hole >= _PADDING) | ((hole > 0) & (following % _PADDING != 0))]
    return _pack(at, np.full(at.size, RowKind.END))


def _entry(elf: ElfFile, start: Ints, limit: Ints) -> list[tuple[int, RowKind]]:
    """Return rows for an entry point that is hand-written and has no rules: nothing calls it, the stack ends there."""
    if not any(
        s.type == PT_LOAD and s.flags & PF_X and s.vaddr <= elf.entry < s.vaddr + s.mem_size for s in elf.segments
    ):
        return []
    at = int(np.searchsorted(start, elf.entry, side="right"))
    if at and elf.entry < limit[at - 1]:
        return []
    end = elf.entry + _ENTRY
    ends = [] if at < start.size and start[at] <= end else [(end, RowKind.END)]
    return [(elf.entry, RowKind.OUTERMOST), *ends]


def _merge(halves: Ints) -> npt.NDArray[np.uint64]:
    """Sort rows by pc, and leave out those that say what the one before says."""
    rows = halves.view(np.uint64)
    rows.sort()
    rule = rows.astype(np.uint32)
    keep = np.ones(rows.size, bool)
    keep[1:] = rule[1:] != rule[:-1]
    rows = rows[keep]
    # The halves in their places.
    merged: npt.NDArray[np.uint64] = rows >> np.uint64(32)
    rows <<= np.uint64(32)
    merged |= rows
    return merged
