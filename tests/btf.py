"""What do compiled BPF objects say of their types? A reader of .BTF, as Documentation/bpf/btf.rst describes it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from otel_gpu.elf import ElfFile

_INT, _ARRAY, _STRUCT, _UNION, _ENUM = 1, 3, 4, 5, 6
_MODIFIERS = (8, 9, 10, 11, 18)
_EXTRA = {
    1: (4, 0),
    3: (12, 0),
    4: (0, 12),
    5: (0, 12),
    6: (0, 8),
    13: (0, 8),
    14: (4, 0),
    15: (0, 12),
    17: (4, 0),
    19: (0, 12),
}
"""Kind -> bytes behind the type: fixed, and for each of its members."""


@dataclass(frozen=True)
class Struct:
    size: int
    members: dict[str, tuple[int, int]]
    """Name -> offset and size in bytes."""


class Btf:
    """The types of one object."""

    def __init__(self, path: Path) -> None:
        with ElfFile(path) as elf:
            section = elf.section(".BTF")
            assert section is not None
            self._data = elf.section_data(section)
        _magic, _version, _flags, header, types, size, strings, _length = struct.unpack_from("<HBBIIIII", self._data)
        self._strings = header + strings
        self._types: list[tuple[int, int, int, int, int]] = [(0, 0, 0, 0, 0)]
        at, end = header + types, header + types + size
        while at < end:
            name, info, value = struct.unpack_from("<III", self._data, at)
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            self._types.append((name, kind, count, value, at + 12))
            fixed, each = _EXTRA.get(kind, (0, 0))
            at += 12 + fixed + each * count

    def structs(self) -> dict[str, Struct]:
        """Return the named structures."""
        found = {}
        for name, kind, count, size, at in self._types:
            if kind == _STRUCT and name:
                members = {}
                for i in range(count):
                    member, type_id, bits = struct.unpack_from("<III", self._data, at + 12 * i)
                    members[self._name(member)] = (bits // 8, self._size(type_id))
                found[self._name(name)] = Struct(size, members)
        return found

    def enumerators(self) -> dict[str, int]:
        """Return the values of all enumerations."""
        return {
            self._name(name): value
            for _, kind, count, _, at in self._types
            if kind == _ENUM
            for name, value in struct.iter_unpack("<Ii", self._data[at : at + 8 * count])
        }

    def _size(self, type_id: int) -> int:
        _, kind, _, value, at = self._types[type_id]
        if kind in _MODIFIERS:
            return self._size(value)
        if kind == _ARRAY:
            element, _index, count = struct.unpack_from("<III", self._data, at)
            return self._size(element) * count
        return 8 if kind == 2 else value

    def _name(self, at: int) -> str:
        start = self._strings + at
        return self._data[start : self._data.index(b"\0", start)].decode()
