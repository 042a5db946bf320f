"""What is this kernel handle called? Names as the driver was asked for them, and as the resolver finds them.

A name is known when the program asked the driver for the kernel while we looked (cuModuleGetFunction,
cuLibraryGetKernel), or when the place that launched it gives it away. Else the handle is all there is, and
the answer says so: a name is never made up.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from ....discovery.program_id import ProgramId
from ....signals.structs import Record

_MAX_KERNELS = 200_000
"""Of one process; what is named beyond that stays a handle."""
_MAX_NAME = 4096


class _Names(Record):
    by_handle: OrderedDict[int, str] = msgspec.field(default_factory=OrderedDict)
    modules: dict[int, set[int]] = msgspec.field(default_factory=dict)
    aliases: dict[int, set[int]] = msgspec.field(default_factory=dict)
    originals: dict[int, int] = msgspec.field(default_factory=dict)
    """What handles stand for whose kernel's name is not known yet."""
    unloaded: OrderedDict[int, None] = msgspec.field(default_factory=OrderedDict)
    """Handles whose module is gone, which make room for others."""
    derived: set[int] = msgspec.field(default_factory=set)
    """Handles whose names nobody said: what was worked out cannot confirm how it is worked out."""

    def has_room(self) -> bool:
        if len(self.by_handle) >= _MAX_KERNELS and self.unloaded:
            handle, _ = self.unloaded.popitem(last=False)
            self.by_handle.pop(handle, None)
            self.derived.discard(handle)
        return len(self.by_handle) < _MAX_KERNELS


class KernelTable:
    """The kernel names of the observed programs. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: dict[ProgramId, _Names] = {}
        self.refused = 0
        """Names that were not kept, because a program has too many kernels."""

    def learn(self, program: ProgramId, handle: int, name: str, module: int = 0, *, derived: bool = False) -> None:
        """Note a kernel's name; `derived` where it was worked out and not said."""
        with self._lock:
            names = self._programs.setdefault(program, _Names())
            if handle not in names.by_handle and not names.has_room():
                self.refused += 1
                return
            names.by_handle[handle] = printable(name)
            names.originals.pop(handle, None)
            names.unloaded.pop(handle, None)
            (names.derived.add if derived else names.derived.discard)(handle)
            if module:
                names.modules.setdefault(module, set()).add(handle)

    def alias(self, program: ProgramId, handle: int, original: int) -> None:
        """Note that a handle stands for the same kernel as another."""
        with self._lock:
            names = self._programs.setdefault(program, _Names())
            if handle == original:
                return
            if (name := names.by_handle.get(original)) is None:
                named = handle in names.by_handle and handle not in names.unloaded
                if not named and (handle in names.originals or len(names.originals) < _MAX_KERNELS):
                    names.originals[handle] = original
                return
            names.originals.pop(handle, None)
            if handle not in names.by_handle and not names.has_room():
                self.refused += 1
                return
            names.by_handle[handle] = name
            names.unloaded.pop(handle, None)
            (names.derived.add if original in names.derived else names.derived.discard)(handle)
            names.aliases.setdefault(original, set()).add(handle)

    def unload(self, program: ProgramId, module: int) -> bool:
        """Note that a module is gone: its handles may be given out again. Say whether they are all known.

        The names stay until a handle is named anew or the room is needed, for launches that are still to be counted.
        """
        with self._lock:
            names = self._programs.get(program)
            if names is None or module not in names.modules:
                return False
            for handle in names.modules.pop(module):
                for gone in (handle, *names.aliases.pop(handle, ())):
                    names.unloaded[gone] = None
            return True

    def unload_all(self, program: ProgramId) -> None:
        """Note that a context is gone: any handle may have gone with it."""
        with self._lock:
            if (names := self._programs.get(program)) is not None:
                names.unloaded.update(dict.fromkeys(names.by_handle))

    def said(self, program: ProgramId, handles: Iterable[int]) -> dict[int, str]:
        """Return those of the handles that are live and whose names were said, not worked out."""
        with self._lock:
            if (names := self._programs.get(program)) is None:
                return {}
            live = (h for h in handles if h in names.by_handle and h not in names.unloaded)
            return {h: names.by_handle[h] for h in live if h not in names.derived}

    def name(self, program: ProgramId, handle: int) -> str | None:
        """Return a kernel's name, None where it is not known."""
        with self._lock:
            names = self._programs.get(program)
            return None if names is None else names.by_handle.get(names.originals.get(handle, handle))

    def original(self, program: ProgramId, handle: int) -> int:
        """Return the handle whose name a handle without one waits for; else the handle itself."""
        with self._lock:
            names = self._programs.get(program)
            return handle if names is None else names.originals.get(handle, handle)

    def forget(self, program: ProgramId) -> None:
        """Drop a program that has ended."""
        with self._lock:
            self._programs.pop(program, None)


def printable(name: str) -> str:
    """Bound a name and escape what must not reach a terminal or a label."""
    if len(name) > _MAX_NAME:
        name = name[: _MAX_NAME - 1] + "…"
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
