"""What does a small ELF file look like that has all that parsers look at? Every address is the offset in the file."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_GNU_EH_FRAME = 1, 2, 4, 0x6474E550
PROGBITS, SYMTAB, STRTAB, DYNSYM = 1, 2, 3, 11
X86_64, AARCH64, CUBIN = 62, 183, 190
_SEGMENTS = {".dynamic": PT_DYNAMIC, ".note.gnu.build-id": PT_NOTE, ".eh_frame_hdr": PT_GNU_EH_FRAME}
_WRITE, _ALLOCATE, _EXECUTE = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A section, and the segment that goes with some of them."""

    name: str
    data: bytes
    type: int = PROGBITS
    link: str = ""
    """Another section."""


def image(pieces: Sequence[Piece], machine: int = X86_64, kind: int = 3) -> bytes:
    """Lay out a file."""
    names = b"\0" + b"".join(p.name.encode() + b"\0" for p in pieces) + b".shstrtab\0"
    every = [*pieces, Piece(".shstrtab", names, STRTAB)]
    numbers = {p.name: n + 1 for n, p in enumerate(every)}
    own = [p for p in pieces if p.name in _SEGMENTS]
    places = offsets(pieces)
    at = places[-1] + (-places[-1] % 8)
    table = at + len(names) + (-len(names) % 8)
    size = table + 64 * (len(every) + 1)
    out = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", kind, machine, 1, places[0], 64, table, 0, 64, 56,
                      1 + len(own), 64, len(every) + 1, len(every))  # fmt: skip
    out += struct.pack("<IIQQQQQQ", PT_LOAD, 7, 0, 0, 0, size, size, 4096)
    for piece in own:
        place = places[pieces.index(piece)]
        out += struct.pack(
            "<IIQQQQQQ", _SEGMENTS[piece.name], 4, place, place, place, len(piece.data), len(piece.data), 4
        )
    for place, piece in zip(places, pieces, strict=False):
        out = out.ljust(place, b"\0") + piece.data
    out = out.ljust(at, b"\0") + names
    out = out.ljust(table, b"\0") + bytes(64)
    name_at = 1
    for place, piece in zip([*places[:-1], at], every, strict=True):
        flags = _ALLOCATE | (_EXECUTE if piece.name.startswith(".text") else _WRITE if ".data" in piece.name else 0)
        entry = 24 if piece.type in (SYMTAB, DYNSYM) else 0
        out += struct.pack(
            "<IIQQQQIIQQ",
            name_at,
            piece.type,
            flags,
            place,
            place,
            len(piece.data),
            numbers.get(piece.link, 0),
            0,
            8,
            entry,
        )
        name_at += len(piece.name) + 1
    return out


def offsets(pieces: Sequence[Piece]) -> list[int]:
    """Return where each piece lies, and behind the last one where the next would begin."""
    at, found = 64 + 56 * (1 + sum(p.name in _SEGMENTS for p in pieces)), []
    for piece in pieces:
        at += -at % 16
        found.append(at)
        at += len(piece.data)
    return [*found, at]


def symbol_table(symbols: Sequence[tuple[str, int, int, int]]) -> tuple[bytes, bytes]:
    """Return a table of (name, address, size, info) and its strings."""
    strings, table = b"\0", bytes(24)
    for name, value, size, info in symbols:
        table += struct.pack("<IBBHQQ", len(strings), info, 0, 1, value, size)
        strings += name.encode() + b"\0"
    return table, strings


def dynamic(entries: dict[int, int]) -> bytes:
    """Return a dynamic section."""
    return b"".join(struct.pack("<QQ", *entry) for entry in [*entries.items(), (0, 0)])
