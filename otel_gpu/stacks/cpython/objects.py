"""What do objects of another process's CPython hold? Dicts, strings and attributes, checked and bounded.

GIL builds of 3.8-3.15. Offsets that are the same in all of them are constants; Include/cpython/{dictobject,unicodeobject,
object}.h and Include/internal/pycore_dict.h name them. What is read may be forged, or change meanwhile: whatever is not as it
has to be is a `MemoryFault`, and nothing is guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from itertools import islice

import numpy as np

from ...sandbox.memory import Memory, MemoryFault
from ...signals.structs import Frozen
from .layout import PythonLayout

_TYPE, _LENGTH, _HASH, _STATE = 8, 16, 24, 32
_TYPE_NAME, _BASIC_SIZE, _FLAGS, _DICT, _DICT_OFFSET, _MRO = 24, 32, 168, 264, 288, 344
_IS_STR, _IS_TUPLE = 1 << 28, 1 << 26
_INLINE_VALUES, _MANAGED_DICT = 1 << 2, 1 << 4
_KEYS, _VALUES = 32, 40
_MODULE_DICT = 16
_HEAP_TYPE_NAMES = range(400, 1200, 8)
"""Where a class may keep its `__name__`: 848 and 856 in what is known; its shared keys are three words further."""
_CACHED_KEYS = 24
_TUPLE_ITEMS = (24, 32)
_MAX_TEXT, _MAX_ENTRIES, _MAX_ITEMS = 512, 1 << 16, 4096
_LEAST, _MOST = 1 << 12, 1 << 47
_SCANNED = 1 << 10
_FIRST_MODULES = 64
"""Among these are `sys` and `builtins`, which every interpreter has before all others."""
MODULES_WITHIN = 1 << 19
"""An interpreter's state has its modules within so many bytes."""


class PythonSymbols(Frozen):
    """Addresses in the process of what the interpreter exports."""

    runtime: int
    dict_type: int
    module_type: int
    unicode_type: int
    tuple_type: int
    code_type: int
    context_variable_type: int
    true_object: int


class Name(Frozen):
    """A str that is a key in dicts."""

    text: int
    hash: int


class PythonObjects:
    """The objects of one process."""

    def __init__(self, memory: Memory, layout: PythonLayout, symbols: PythonSymbols) -> None:
        self._memory = memory
        self._layout = layout
        self.minor = layout.minor
        self.symbols = symbols

    def word(self, address: int) -> int:
        """Return eight bytes as a number."""
        value: int = struct.unpack("<Q", self._memory.read(address, 8))[0]
        return value

    def type_of(self, address: int) -> int:
        """Return the address of an object's type."""
        return self.word(address + _TYPE)

    def text(self, address: int) -> str:
        """Return what an ASCII str says."""
        if self.type_of(address) != self.symbols.unicode_type:
            raise MemoryFault(f"there is no str at {address:#x}")
        length = self.word(address + _LENGTH)
        (state,) = struct.unpack("<I", self._memory.read(address + _STATE, 4))
        if length > _MAX_TEXT or not state & 0x40:
            raise MemoryFault(f"the str at {address:#x} is not short ASCII")
        return self._memory.read(address + self._layout.str_ascii, length).decode("ascii", "replace")

    def name(self, address: int) -> Name:
        """Return a str as dicts know it; MemoryFault where it never was a key."""
        value = self.word(address + _HASH)
        if value == (1 << 64) - 1:
            raise MemoryFault("the str has no hash yet")
        return Name(address, value)

    def entries(self, address: int) -> Iterator[tuple[int, int]]:
        """Yield the keys and values of a dict, by address."""
        keys, values = self.word(address + _KEYS), self.word(address + _VALUES)
        if values and self.minor >= 13:
            values += 8
        for number, (key, value) in enumerate(self._entries_of(keys)):
            if key:
                found = self.word(values + 8 * number) if values else value
                if found:
                    yield key, found

    def _entries_of(self, keys: int) -> Iterator[tuple[int, int]]:
        if self.minor >= 11:
            _, log, log_bytes, kind = struct.unpack("<QBBB", self._memory.read(keys, 11))
            (count,) = struct.unpack("<Q", self._memory.read(keys + 24, 8))
            if log > 32 or log_bytes > 36:
                raise MemoryFault(f"there are no keys of a dict at {keys:#x}")
            at, wide = keys + 32 + (1 << log_bytes), kind == 0
        else:
            size, _, _, count = struct.unpack("<QQQQ", self._memory.read(keys + 8, 32))
            if size > 1 << 32:
                raise MemoryFault(f"there are no keys of a dict at {keys:#x}")
            width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4
            at, wide = keys + 40 + size * width, True
        if count > _MAX_ENTRIES:
            raise MemoryFault(f"the dict's keys at {keys:#x} are too many")
        if not count:
            return
        words = np.frombuffer(self._memory.read(at, count * (24 if wide else 16)), "<u8").reshape(count, -1)
        for row in words.tolist():
            yield row[-2], row[-1]

    def items(self, address: int) -> Iterator[tuple[str, int]]:
        """Yield what a dict has under names."""
        for key, value in self.entries(address):
            try:
                yield self.text(key), value
            except MemoryFault:
                continue

    def named(self, address: int, *wanted: str) -> dict[str, int]:
        """Return what a dict has under the wanted names."""
        return {name: value for name, value in self.items(address) if name in wanted}

    def module_names(self, module: int) -> int:
        """Return the dict of a module."""
        if self.type_of(module) != self.symbols.module_type:
            raise MemoryFault(f"there is no module at {module:#x}")
        return self.word(module + _MODULE_DICT)

    def class_names(self, type_: int) -> int:
        """Return the dict of a class."""
        return self.word(type_ + _DICT)

    def class_name(self, type_: int) -> str:
        """Return a type's name without its module."""
        at = self.word(type_ + _TYPE_NAME)
        return self._memory.read(at, 64).split(b"\0")[0].decode("ascii", "replace").rpartition(".")[2]

    def items_of_tuple(self, address: int) -> list[int]:
        """Return what a tuple holds."""
        count = self.word(address + _LENGTH)
        if self.type_of(address) != self.symbols.tuple_type or count > _MAX_ITEMS:
            raise MemoryFault(f"there is no tuple at {address:#x}")
        return list(struct.unpack(f"<{count}Q", self._memory.read(address + self.tuple_items, 8 * count)))

    @cached_property
    def tuple_items(self) -> int:
        """The offset of a tuple's items: from 3.14 on a hash stands before them."""
        # The first class in a class's order of resolution is itself.
        type_ = self.symbols.dict_type
        order = self.word(type_ + _MRO)
        for offset in _TUPLE_ITEMS:
            if self.word(order + offset) == type_:
                return offset
        raise MemoryFault("it is not known where tuples have their items")

    def shared_keys(self, type_: int) -> int:
        """Return the keys that a class's objects have in common; 0 where there are none."""
        wanted = self.class_name(type_)
        data = self._memory.read(type_, _HEAP_TYPE_NAMES.stop + _CACHED_KEYS + 8)
        for at in _HEAP_TYPE_NAMES:
            (candidate,) = struct.unpack_from("<Q", data, at)
            if _is_pointer(candidate):
                try:
                    if self.text(candidate) == wanted:
                        keys: int = struct.unpack_from("<Q", data, at + _CACHED_KEYS)[0]
                        return keys
                except MemoryFault:
                    continue
        return 0

    def values_place(self, type_: int) -> int | None:
        """Return where an object has its dict, up to 3.10, or its values, from 3.13 on; 0 between; None where it has none."""
        flags = self.word(type_ + _FLAGS)
        if self.minor >= 13:
            return self.word(type_ + _BASIC_SIZE) if flags & _INLINE_VALUES else None
        if self.minor >= 11:
            return 0 if flags & _MANAGED_DICT else None
        (offset,) = struct.unpack("<q", self._memory.read(type_ + _DICT_OFFSET, 8))
        return offset if offset > 0 else None

    def attribute(self, object_: int, name: str) -> int:
        """Return the address of what an object has under a name; MemoryFault where there is none."""
        type_ = self.type_of(object_)
        place = self.values_place(type_)
        if place is None:
            raise MemoryFault("the object has no attributes")
        values, names = self._values_of(object_, place)
        if names:
            found = self.named(names, name).get(name)
        else:
            keys = [key for key, _ in self._entries_of(self.shared_keys(type_))]
            numbers = (n for n, key in enumerate(keys) if key and self.text(key) == name)
            found = next((self.word(values + 8 * n) for n in numbers), None)
        if not found:
            raise MemoryFault(f"the object has no {name}")
        return found

    def _values_of(self, object_: int, place: int) -> tuple[int, int]:
        """Return an object's values, or else its dict."""
        if self.minor >= 13:
            is_valid = self._memory.read(object_ + place, 4)[3]
            return (object_ + place + 8, 0) if is_valid else (0, self.word(object_ - 24))
        if self.minor == 12:
            word = self.word(object_ - 24)
            return (word + 1, 0) if word & 1 else (0, word)
        if self.minor == 11:
            values = self.word(object_ - 32)
            return (values, 0) if values else (0, self.word(object_ - 24))
        return 0, self.word(object_ + place)

    def names_used(self, function: int) -> Iterator[tuple[str, int]]:
        """Yield the names that a function's code uses, which are keys in dicts by the same objects."""
        for code in self._pointers(function, 160):
            if self.type_of(code) != self.symbols.code_type:
                continue
            for names in self._pointers(code, 200):
                try:
                    if self.type_of(names) != self.symbols.tuple_type:
                        continue
                    for text in self.items_of_tuple(names):
                        yield self.text(text), text
                except MemoryFault:
                    continue
            return

    def _pointers(self, object_: int, size: int) -> Iterator[int]:
        for word in struct.unpack(f"<{size // 8}Q", self._memory.read(object_, size)):
            if _is_pointer(word):
                try:
                    self.type_of(word)
                except MemoryFault:
                    continue
                yield word

    def modules(self) -> int:
        """Return the dict of an interpreter's modules: the one in its state that has `sys` and `builtins`."""
        interpreter = self.word(self.symbols.runtime + self._layout.runtime_interpreters + 8)
        seen: set[int] = set()
        for start in range(0, MODULES_WITHIN, _SCANNED):
            try:
                words = np.frombuffer(self._memory.read(interpreter + start, _SCANNED), "<u8")
            except MemoryFault:
                break
            likely = words[(words > _LEAST) & (words < _MOST) & (words % 8 == 0)]
            for candidate in dict.fromkeys(likely.tolist()):
                if candidate not in seen and self.is_modules(candidate):
                    return int(candidate)
                seen.add(candidate)
        raise MemoryFault("the interpreter's modules were not found")

    def is_modules(self, candidate: int) -> bool:
        """Tell whether that is the dict of an interpreter's modules."""
        try:
            if self.type_of(candidate) != self.symbols.dict_type:
                return False
            first = islice(self.items(candidate), _FIRST_MODULES)
            found = {name: value for name, value in first if name in ("sys", "builtins")}
            return len(found) == 2 and all(self.type_of(m) == self.symbols.module_type for m in found.values())
        except MemoryFault:
            return False


def _is_pointer(word: int) -> bool:
    return _LEAST < word < _MOST and word % 8 == 0
