"""Which kernel is this handle, by the driver's own record of it?

A CUfunction or CUkernel is the address of a record that the driver keeps, and the record leads to the kernel's name.
How is the driver's secret, but the same for all records of one build. So it is not assumed, it is tried: a path, a few
offsets that are followed as pointers, counts only where it gives the right name for several handles whose names are
known otherwise and no other text for any; or, where no name is known otherwise, where it leads from the handles to
different names that all stand in device code which the program has.

Nothing here knows how any driver lays its records out. Where two paths do not agree, there is no name.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from ....sandbox.memory import Memory, MemoryFault
from .stub_map import MAX_NAME

Path = tuple[int, ...]
"""Offsets, each of which but the last is followed as a pointer; at the last one the text begins."""
Texts = Mapping[Path, str]
"""What a handle leads to."""

_RECORD, _INNER = 512, 128
"""How many bytes of the record, and of what it points to, are looked at."""
_LONGEST = 3
_MIN_CONFIRMED = 3
"""Different names that a path must have led to rightly before it is believed."""
_MIN_SUPPORTED = 2
"""Handles without a known name, from which device code can tell anything."""
_MAX_LOOKED_AT = 64
"""Handles of one program whose records are looked through for paths."""
_UNEXPLAINED = 3
"""Names that no believed path leads to, before others are looked for: handles may be of two kinds."""
_SHARE = 0.75
"""Of the handles, whose names must stand in device code; some code may be gone. A path must lead to a name from all."""
_WORD = 8
_LOWEST, _HIGHEST = 0x1000, 1 << 56
_STEP = 64
_LIKELY = 3
"""Shorter texts are often numbers."""
_IDENTIFIER = re.compile(rb"[A-Za-z_$%%][\w$%%]{0,%d}" % (MAX_NAME - 1))


def texts(memory: Memory, handle: int) -> dict[Path, str]:
    """Return every identifier that a handle's record leads to, by the path to it."""
    found: dict[Path, str] = {}
    if not _is_pointer(handle):
        return found
    for first, word in _words(memory, handle, _RECORD):
        _note(found, (first,), memory, handle + first)
        if not _is_pointer(word):
            continue
        for second, inner in _words(memory, word, _INNER):
            _note(found, (first, second), memory, word + second)
            if _is_pointer(inner):
                _note(found, (first, second, 0), memory, inner)
        if word % _WORD:
            _note(found, (first, 0), memory, word)
    return found


def follow(memory: Memory, handle: int, path: Path) -> str | None:
    """Return the identifier that a path leads to from a handle, None where there is none."""
    address = handle
    try:
        for offset in path[:-1]:
            (address,) = struct.unpack("<Q", memory.read(address + offset, _WORD))
            if not _LOWEST <= address < _HIGHEST:
                return None
    except MemoryFault:
        return None
    return _text(memory, address + path[-1])


def led_to(memory: Memory, handle: int, paths: Iterable[Path]) -> str | None:
    """Return the one name that the believed paths lead to, None where they lead to none or do not agree."""
    return _only_likely(follow(memory, handle, path) for path in paths)


def agreed(said: Iterable[bytes]) -> str | None:
    """Return the one name among texts that the believed paths led to, None where there is none or they do not agree."""
    return _only_likely(_identifier(text) for text in said)


def _only_likely(names: Iterable[str | None]) -> str | None:
    likely = {name for name in names if name is not None and len(name) >= _LIKELY}
    return likely.pop() if len(likely) == 1 else None


def confirmed(found: Mapping[int, Texts], told: Mapping[int, str]) -> frozenset[Path]:
    """Return the paths that lead to the right names from handles whose names are known otherwise, and to no other.

    Behind a record other things are allocated, and now and then they are a name. A path that is right for some of the
    handles only for which another one is, is such an accident.
    """
    right: defaultdict[Path, set[int]] = defaultdict(set)
    wrong: set[Path] = set()
    for handle, name in told.items():
        for path, text in found.get(handle, {}).items():
            if text == name:
                right[path].add(handle)
            elif contradicts(text, name):
                wrong.add(path)
    fitting = {
        path: handles
        for path, handles in right.items()
        if path not in wrong and len({told[handle] for handle in handles}) >= _MIN_CONFIRMED
    }
    return frozenset(path for path, handles in fitting.items() if not any(handles < more for more in fitting.values()))


def judged(memory: Memory, paths: frozenset[Path], told: Mapping[int, str]) -> frozenset[Path]:
    """Return the paths that are believed after a program's known names have had their say."""
    explained: set[str] = set()
    for handle, name in told.items():
        led = {path: follow(memory, handle, path) for path in paths}
        paths -= {path for path, text in led.items() if contradicts(text, name)}
        if name in led.values():
            explained.add(name)
    if len(set(told.values()) - explained) >= _UNEXPLAINED:
        handles = list(told)[-_MAX_LOOKED_AT:]
        paths |= confirmed({handle: texts(memory, handle) for handle in handles}, told)
    return paths


def all_texts(memory: Memory, handles: Collection[int], told: Mapping[int, str]) -> dict[int, Texts]:
    """Return what handles, and those whose names are known, lead to; of the first ones if there are many."""
    return {handle: texts(memory, handle) for handle in [*told, *handles][:_MAX_LOOKED_AT]}


def supported_by_code(
    found: Mapping[int, Texts], told: Mapping[int, str], device_names: AbstractSet[str]
) -> frozenset[Path]:
    """Return the paths that a program's own device code speaks for, where too few names are known otherwise."""
    paths = supported(found, device_names | set(told.values()))
    return frozenset(p for p in paths if all(found[h].get(p, name) == name for h, name in told.items() if h in found))


def contradicts(text: str | None, name: str) -> bool:
    """Say whether what a path leads to is another name."""
    return text is not None and text != name and len(text) >= _LIKELY


def is_scarce(found: Collection[int]) -> bool:
    """Say whether there are so few handles that what they support holds for themselves only."""
    return len(found) < _MIN_CONFIRMED


def supported(found: Mapping[int, Texts], names: AbstractSet[str]) -> frozenset[Path]:
    """Return the paths from handles without names to different kernels of the program's device code.

    A path that begins with a pointer and goes on as another one does, leads to the name of another record of the same
    kind: the next one in a list, say. It is no rival of the path to the record's own name. Other rivals are, and where
    two paths say different things of one handle, none is believed. Of two handles alone, neither may lead to a second
    kernel by any path; of one, nothing can be said.
    """
    if is_scarce(found) and any(len(names & set(leads.values())) != 1 for leads in found.values()):
        return frozenset()
    said = _by_path(found)
    fitting = {path: by_handle for path, by_handle in said.items() if _fits(by_handle, names, len(found))}
    own = {path: by_handle for path, by_handle in fitting.items() if not any(path[n:] in fitting for n in (1, 2))}
    agreed: dict[int, str] = {}
    for by_handle in own.values():
        for handle, text in by_handle.items():
            if agreed.setdefault(handle, text) != text:
                return frozenset()
    return frozenset(own)


def might_be_supported(found: Mapping[int, Texts]) -> bool:
    """Say whether any path leads to so many different texts that device code is worth looking for."""
    return any(_fits(by_handle, set(by_handle.values()), len(found)) for by_handle in _by_path(found).values())


def _by_path(found: Mapping[int, Texts]) -> dict[Path, dict[int, str]]:
    said: defaultdict[Path, dict[int, str]] = defaultdict(dict)
    for handle, leads in found.items():
        for path, text in leads.items():
            said[path][handle] = text
    return said


def _fits(by_handle: Mapping[int, str], names: AbstractSet[str], handles: int) -> bool:
    known = [text for text in by_handle.values() if text in names]
    others = [text for text in by_handle.values() if text not in names and len(text) >= _LIKELY]
    all_named = len(known) + len(others) == handles
    different = min(max(handles, _MIN_SUPPORTED), _MIN_CONFIRMED)
    return all_named and len(set(known)) >= different and len(known) >= _SHARE * handles


def is_path(path: Path) -> bool:
    """Say whether something can be a path at all: what was read from disk may be anything."""
    return 1 <= len(path) <= _LONGEST and all(0 <= offset < _RECORD for offset in path)


def _note(found: dict[Path, str], path: Path, memory: Memory, address: int) -> None:
    if (text := _text(memory, address)) is not None:
        found[path] = text


def _text(memory: Memory, address: int) -> str | None:
    """Return the identifier at an address, ended by a zero byte."""
    raw = b""
    while b"\0" not in raw and len(raw) <= MAX_NAME:
        size = _STEP - (address + len(raw)) % _STEP
        try:
            piece = memory.read(address + len(raw), size)
        except MemoryFault:
            return None
        if not raw and not (piece[:1].isalpha() or piece[:1] in (b"_", b"$", b"%")):
            return None
        raw += piece
    return _identifier(raw.partition(b"\0")[0])


def _identifier(text: bytes) -> str | None:
    return text.decode("ascii") if _IDENTIFIER.fullmatch(text) else None


def _words(memory: Memory, address: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, word) of a record, as far as it can be read."""
    if address % _WORD:
        return
    offset = 0
    while offset < size:
        step = _STEP - (address + offset) % _STEP  # never across a page: the next one may not be there
        try:
            block = memory.read(address + offset, step)
        except MemoryFault:
            return
        for at, (word,) in enumerate(struct.iter_unpack("<Q", block)):
            yield offset + at * _WORD, word
        offset += step


def _is_pointer(word: int) -> bool:
    return _LOWEST <= word < _HIGHEST
