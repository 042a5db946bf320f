"""Where are the instructions of call frame programs, and what are their operands?

The encodings are those of DWARF 5, section 7.24. All programs of a chunk are followed in lockstep.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .records import Bools, Bytes, Ints

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
_MAX_LEB = 10
_BLOCK = 3
"""In place of a number of operands: an expression, which states its length."""

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
    lebs[[DEF_CFA_EXPRESSION, EXPRESSION, VAL_EXPRESSION]] = _BLOCK
    relevant = (fixed > 0) | (lebs > 0)
    relevant[[NOP, ARGS_SIZE]] = False
    relevant[OFFSET : OFFSET + 64] = False
    relevant[RESTORE : RESTORE + 64] = False
    relevant[[OFFSET + RBP, OFFSET + RIP, RESTORE + RBP, RESTORE + RIP]] = True
    relevant[HEAD] = True
    return fixed, lebs, relevant


_FIXED, _LEBS, RELEVANT = _forms()
# bytes.translate is several times faster than an indexed array.
_SHORTEST, _LEBS_OF = (_FIXED + _LEBS + (_LEBS > 0)).tobytes(), _LEBS.tobytes()


def tokenise(code: Bytes, begin: Ints, end: Ints) -> tuple[Bools, Bools]:
    """Mark where instructions begin; say which programs hold unknown or truncated ones."""
    size = code.size
    following = _following(code)
    marks = np.zeros(size, bool)
    bad = np.zeros(begin.size, bool)
    who = np.flatnonzero(begin < end)
    p, stop = begin[who], end[who]
    while who.size > _LOCKSTEP_MINIMUM:
        marks[p] = True
        p = following[p].astype(np.int64)
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


def _following(code: Bytes) -> npt.NDArray[np.int32]:
    """Return for each place where the next instruction would begin if one began here; beyond the end if none does."""
    raw = code.tobytes()
    shortest = np.frombuffer(raw.translate(_SHORTEST), np.uint8)
    lebs = np.frombuffer(raw.translate(_LEBS_OF), np.uint8)
    following = np.arange(code.size, dtype=np.int32)
    following += shortest
    # Now right wherever numbers have one byte. The others:
    goes_on = np.zeros(code.size + 2, bool)
    goes_on[:-2] = code >= 128
    others = (lebs == _BLOCK) | ((lebs > 0) & goes_on[1:-1]) | ((lebs == 2) & goes_on[2:])
    at = np.flatnonzero(others)
    op = code[at]
    past = _past(code, at + 1)
    past = np.where(_LEBS[op] == 2, _past(code, past), past)
    for kind in (DEF_CFA_EXPRESSION, EXPRESSION, VAL_EXPRESSION):
        mine = np.flatnonzero(op == kind)
        length_at = at[mine] + 1 if kind == DEF_CFA_EXPRESSION else past[mine]
        past[mine] = _past(code, length_at) + leb(code, length_at)
    following[at] = np.minimum(past, code.size + 1)
    np.putmask(following, shortest == 0, code.size + 1)
    return following


def _past(code: Bytes, at: Ints) -> Ints:
    """Return the places just past the LEB128 numbers that begin here; beyond the end for those of over 10 bytes."""
    last = code.size - 1
    at = at.copy()
    going = np.flatnonzero(at <= last)
    for _ in range(_MAX_LEB):
        going = going[code[at[going]] >= 128]
        at[going] += 1
        going = going[at[going] <= last]
        if not going.size:
            break
    at[going[code[at[going]] >= 128]] = last + 1
    return at + 1


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
