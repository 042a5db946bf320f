"""Which source line does this bytecode offset belong to? CPython's three line table formats.

The tables come from the target's memory: any bytes are read to the end or to the first nonsense, and
the answer is then None, no line.
"""

from __future__ import annotations

from .layout import LineTable

_MAX_LINE = 1 << 31
"""Line numbers are C ints; a table that leaves their range is nonsense."""


def line_at(kind: LineTable, table: bytes, first_line: int, lasti: int) -> int | None:
    """Return the line of the instruction `lasti` bytes into the code, or None where it has none."""
    if lasti < 0:
        # -1 or, as a pointer, one unit before the start: called, and no instruction has run yet.
        return first_line if lasti >= -2 else None
    line: int | None
    if kind is LineTable.LNOTAB:
        line = _lnotab(table, first_line, lasti)
    elif kind is LineTable.PEP626:
        line = _pep626(table, first_line, lasti)
    else:
        line = _locations(table, first_line, lasti)
    return line if line is not None and 0 <= line < _MAX_LINE else None


def _lnotab(table: bytes, line: int, lasti: int) -> int:
    """`Objects/lnotab_notes.txt` of 3.9: pairs of an address step and a signed line step."""
    address = 0
    for step, delta in zip(table[::2], table[1::2]):
        address += step
        if address > lasti:
            break
        line += delta - 256 if delta >= 128 else delta
    return line


def _pep626(table: bytes, line: int, lasti: int) -> int | None:
    """`Objects/lnotab_notes.txt` of 3.10: pairs of a range's length and a signed line step; -128 is no line."""
    end = 0
    for step, delta in zip(table[::2], table[1::2]):
        end += step
        if delta != 128:
            line += delta - 256 if delta > 128 else delta
        if lasti < end:
            return None if delta == 128 else line
    return None


def _locations(table: bytes, line: int, lasti: int) -> int | None:
    """`Objects/locations.md` of 3.11+: entries of a head byte (bit 7 set) and what its kind asks for."""
    at, end = 0, 0
    size = len(table)
    while at < size:
        head = table[at]
        kind = head >> 3 & 15
        at += 1
        if not head & 0x80:
            return None
        if kind in (13, 14):
            value, at = _varint(table, at)
            line += -(value >> 1) if value & 1 else value >> 1
            if kind == 14:
                # End line and both columns, which nobody asked for.
                for _ in range(3):
                    _, at = _varint(table, at)
        elif 10 <= kind <= 12:
            line += kind - 10
            at += 2
        elif kind < 10:
            at += 1
        end += 2 * ((head & 7) + 1)
        if lasti < end:
            return None if kind == 15 or at > size else line
    return None


def _varint(table: bytes, at: int) -> tuple[int, int]:
    """Read six bits a byte, lowest first, bit 6 set while more follow; ints need six bytes, no more are read."""
    value = 0
    for shift in range(0, 36, 6):
        if at >= len(table):
            return value, at + 1
        byte = table[at]
        at += 1
        value |= (byte & 63) << shift
        if not byte & 64:
            break
    return value, at
