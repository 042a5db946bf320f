"""Where are the instructions of call frame programs, and what are their operands?

The encodings are those of DWARF 5, section 7.24. All programs of a chunk are followed in lockstep.
"""

from __future__ import annotations

import numpy as np

from .frame_records import Bools, Bytes, Ints

RSP, RBP, RIP = 7, 6, 16
"""The columns that are followed, numbered as on x86-64."""
NOP, ADVANCE, OFFSET, RESTORE = 0x00, 0x40, 0x80, 0xC0
ADVANCE1, ADVANCE2, ADVANCE4 = 0x02, 0x03, 0x04
OFFSET_EXTENDED, RESTORE_EXTENDED, UNDEFINED, SAME_VALUE, REGISTER = 0x05, 0x06, 0x07, 0x08, 0x09
REMEMBER_STATE, RESTORE_STATE = 0x0A, 0x0B
DEF_CFA, DEF_CFA_REGISTER, DEF_CFA_OFFSET, DEF_CFA_EXPRESSION = 0x0C, 0x0D, 0x0E, 0x0F
EXPRESSION, OFFSET_EXTENDED_SF, DEF_CFA_SF, DEF_CFA_OFFSET_SF = 0x10, 0x11, 0x12, 0x13
VAL_OFFSET, VAL_OFFSET_SF, VAL_EXPRESSION, ARGS_SIZE, NEGATIVE_OFFSET = 0x14, 0x15, 0x16, 0x2E, 0x2F
HEAD = 0x3F
"""Ours: the place before a program's first instruction, where the initial rules are set."""

_HUGE = 1 << 40

_LOCKSTEP_MINIMUM = 64
"""Below this many programs one step of all costs more than the same by a loop."""


def _forms() -> tuple[Bytes, Bytes, Bools]:
    fixed, lebs = np.zeros(256, np.uint8), np.zeros(256, np.uint8)
    fixed[[NOP, REMEMBER_STATE, RESTORE_STATE]] = 1
    fixed[ADVANCE : ADVANCE + 64] = 1
    fixed[RESTORE : RESTORE + 64] = 1
    fixed[[ADVANCE1, ADVANCE2, ADVANCE4]] = 2, 3, 5
    lebs[OFFSET : OFFSET + 64] = 1
    lebs[[RESTORE_EXTENDED, UNDEFINED, SAME_VALUE, DEF_CFA_REGISTER]] = 1
    lebs[[DEF_CFA_OFFSET, DEF_CFA_OFFSET_SF, ARGS_SIZE]] = 1
    lebs[[OFFSET_EXTENDED, REGISTER, DEF_CFA, OFFSET_EXTENDED_SF, DEF_CFA_SF]] = 2
    lebs[[VAL_OFFSET, VAL_OFFSET_SF, NEGATIVE_OFFSET]] = 2
    relevant = (fixed > 0) | (lebs > 0)
    relevant[[NOP, ARGS_SIZE]] = False
    relevant[OFFSET : OFFSET + 64] = False
    relevant[RESTORE : RESTORE + 64] = False
    relevant[[OFFSET + RBP, OFFSET + RIP, RESTORE + RBP, RESTORE + RIP]] = True
    relevant[[DEF_CFA_EXPRESSION, EXPRESSION, VAL_EXPRESSION, HEAD]] = True
    return fixed, lebs, relevant


_FIXED, _LEBS, RELEVANT = _forms()


def tokenise(code: Bytes, begin: Ints, end: Ints) -> tuple[Bools, Bools]:
    """Mark where instructions begin; say which programs hold unknown or truncated ones."""
    size = code.size
    places = np.arange(1, size + 1, dtype=np.int32)
    # after[i]: just past the LEB128 number that begins at i; beyond the end where it does not end.
    after = np.minimum.accumulate(np.where(code < 128, places, size + 1)[::-1])[::-1].astype(np.int32)
    after = np.append(after, np.int32(size + 1))
    following = places + (_FIXED[code] - np.int32(1))
    lebs = _LEBS[code]
    at = np.flatnonzero(lebs)
    past = after[at + 1]
    two = lebs[at] == 2
    past[two] = after[np.minimum(past[two], size)]
    following[at] = past
    unknown = (_FIXED[code] == 0) & (lebs == 0)
    following[unknown] = size + 1
    for op in (DEF_CFA_EXPRESSION, EXPRESSION, VAL_EXPRESSION):
        at = np.flatnonzero(code == op)
        length_at = at + 1 if op == DEF_CFA_EXPRESSION else np.minimum(after[at + 1], size).astype(np.int64)
        past = after[np.minimum(length_at, size)]
        length = leb(code, length_at)
        following[at] = np.minimum(past + length, size + 1)

    marks = np.zeros(size, bool)
    bad = np.zeros(begin.size, bool)
    who = np.flatnonzero(begin < end)
    p, stop = begin[who], end[who]
    while who.size > _LOCKSTEP_MINIMUM:
        marks[p] = True
        p = following[p]
        going = p < stop
        if not going.all():
            bad[who[p > stop]] = True
            who, p, stop = who[going], p[going], stop[going]
    for program, first, last in zip(who.tolist(), p.tolist(), stop.tolist(), strict=True):
        lengths = following[first:last].tolist()
        found, q = [], first
        while q < last:
            found.append(q)
            q = lengths[q - first]
        marks[found] = True
        bad[program] = q > last
    return marks, bad


def leb(code: Bytes, at: Ints, *, signed: bool = False) -> Ints:
    """Decode the LEB128 numbers at these places; _HUGE for what has more than 28 bits or is cut off."""
    at = np.minimum(at, code.size - 1)
    first = code[at]
    value = (first & 127).astype(np.int64)
    if signed:
        value -= (first & 0xC0 == 0x40) * np.int64(128)
    more = np.flatnonzero(first >= 128)
    total, shift = value[more] if not signed else (first[more] & 127).astype(np.int64), 7
    while more.size:
        p = at[more] + shift // 7
        if shift >= 28:
            value[more] = _HUGE
            break
        inside = p < code.size
        byte = code[np.minimum(p, code.size - 1)]
        total |= (byte & 127).astype(np.int64) << shift
        shift += 7
        value[more] = np.where(inside, total, _HUGE)
        if signed:
            value[more] -= np.where(inside & (byte & 0x40 != 0), np.int64(1) << shift, 0)
        going = inside & (byte >= 128)
        more, total = more[going], total[going]
    return value
