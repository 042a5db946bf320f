"""Readers of single records of the kernel's, made from their types in `bpf.abi`: NumPy takes ten times as long for one."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

import numpy as np

_CODES = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i1": "b", "i2": "h", "i4": "i", "i8": "q"}


def offset_of(record: np.dtype[np.void], name: str) -> int:
    """Return where a field begins, in bytes."""
    return _fields(record)[name][1]


def names_before(record: np.dtype[np.void], name: str) -> list[str]:
    """Return the names of the fields before one."""
    names = list(_fields(record))
    return names[: names.index(name)]


def struct_of(
    record: np.dtype[np.void], *names: str, as_bytes: Collection[str] = (), size: int | None = None
) -> struct.Struct:
    """Return what reads and writes fields of a record, in its order; all fields where none is named.

    It ends behind the last of them, or after `size` bytes. Fields within fields, and numbers within arrays, are values of
    their own, but for arrays of single bytes, characters, and what is called as in `as_bytes`: they are `bytes`.
    """
    fields = _fields(record)
    at, codes = 0, ["<"]
    for name in fields:
        kind, offset, *_ = fields[name]
        if names and name not in names:
            continue
        codes += [f"{offset - at}x" if offset > at else "", *_codes(name, kind, as_bytes)]
        at = offset + kind.itemsize
    if size is not None and size > at:
        codes.append(f"{size - at}x")
    return struct.Struct("".join(codes))


def _codes(name: str, kind: np.dtype[np.void], as_bytes: Collection[str]) -> Iterator[str]:
    count = kind.itemsize // kind.base.itemsize
    if name in as_bytes or kind.base.kind == "S" or (kind.base.itemsize == 1 and count > 1):
        yield f"{kind.itemsize}s"
    elif kind.base.names is None:
        yield f"{count if count > 1 else ''}{_CODES[kind.base.str[1:]]}"
    else:
        for _ in range(count):
            for inner, (inner_kind, *_rest) in _fields(kind.base).items():
                yield from _codes(inner, inner_kind, as_bytes)


def _fields(record: np.dtype[np.void]) -> dict[str, tuple[np.dtype[np.void], int]]:
    if record.fields is None:
        raise TypeError(f"{record} has no fields")
    return dict(record.fields)
