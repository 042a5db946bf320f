"""What is known of one program that launches kernels: its files, the handles in their variables, who launches what?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ....sandbox.files import MappedFile
from ....signals.structs import Record
from .launches import Launch, Module, caller, launching_file
from .stub_map import StubMap

_REREAD_S = 1.0
"""How often the handle variables of a program are read again while unknown handles turn up."""
_MAX_JUDGES = 256
"""Handles with known names, of one program, by which its records are judged."""
_MAX_STUB_BYTES = 256 << 20
"""Of one program's files; all of vLLM's, of which few are read, take 40 MB."""
_MAX_CALLERS = 16_384
"""Kernels of one program whose launching files are kept."""


class KnownProgram(Record):
    """What is known of one program."""

    modules: list[Module] = msgspec.field(default_factory=list)
    told: dict[int, str] = msgspec.field(default_factory=dict)
    """Some of the names that did not come from records."""
    callers: dict[int, str | None] = msgspec.field(default_factory=dict)
    """The files that launch what had no name when it was launched; None where none is on the stack."""
    wasted_s: float = 0.0
    """How long its files were read in vain."""
    _mapped: Sequence[MappedFile] = ()
    _handles: dict[int, tuple[StubMap, Any]] = msgspec.field(default_factory=dict)
    """What the handle variables of each module held when they were last read, by the module's bias."""
    _handles_read: float = 0.0

    def map(self, mapped: Sequence[MappedFile], modules_of: Callable[[Sequence[MappedFile]], Iterable[Module]]) -> None:
        """Take in what the program has mapped now."""
        if mapped == self._mapped:
            return
        modules = {module.file: module for module in self.modules}
        new = modules_of([file for file in mapped if file not in modules])
        modules |= {module.file: module for module in new}
        self.modules = [modules[file] for file in mapped if file in modules]
        self._mapped = mapped
        self._handles_read = 0.0

    def file_at(self, address: int) -> Module | None:
        """Return the file that an address is in, of its code or its variables."""
        return next((module for module in self.modules if module.extent[0] <= address < module.extent[1]), None)

    def with_stubs(self) -> list[Module]:
        """Return the modules that have kernels: of hundreds, a few."""
        return [module for module in self.modules if module.has_kernels]

    def next_unread(self, launches: list[Launch]) -> Module | None:
        """Return a module whose kernels are still to be read: one beside a launching file first, else the smallest."""
        callers = (caller(launch, self.modules) for launch in launches)
        folders = {_folder(module) for module in callers if module is not None}
        unread = (module for module in self.modules if module.stubs is None)
        return min(unread, key=lambda m: (_folder(m) not in folders, m.extent[1] - m.extent[0]), default=None)

    def put(self, read: Module, stubs: StubMap) -> None:
        """Note the kernels of a file, which may be mapped in several parts; none where the program has too many."""
        held = {id(m.stubs): m.stubs for m in self.modules if m.stubs is not None and m.has_kernels}
        if sum(its.size_bytes for its in held.values()) + stubs.size_bytes > _MAX_STUB_BYTES:
            stubs = StubMap()
        self.modules = [replace(m, stubs=stubs) if m.extent == read.extent else m for m in self.modules]
        self._handles_read = 0.0

    def note_caller(self, launch: Launch) -> None:
        """Note which file launches a kernel."""
        if len(self.callers) < _MAX_CALLERS:
            self.callers.setdefault(launch.handle, launching_file(launch, self.modules))

    def new_handles(self, read_words: Callable[[Any], Any]) -> Iterator[tuple[int, str]]:
        """Yield the handles, with their kernels' names, that variables hold and did not hold the last time.

        `read_words` returns the 64-bit numbers at sorted addresses, 0 where nothing can be read.
        """
        for module in {m.bias: m for m in self.with_stubs()}.values():
            yield from self._new_handles_of(module, read_words)

    def are_handles_due(self) -> bool:
        """Say, once in a while, that the handle variables should be read."""
        if time.monotonic() - self._handles_read < _REREAD_S:
            return False
        self._handles_read = time.monotonic()
        return True

    def _new_handles_of(self, module: Module, read_words: Callable[[Any], Any]) -> Iterator[tuple[int, str]]:
        import numpy as np

        stubs = module.stubs
        if stubs is None or not stubs.handle_variables:
            return
        values = read_words(np.frombuffer(stubs.handle_variables, np.int64) + module.bias)
        of, before = self._handles.get(module.bias, (None, None))
        self._handles[module.bias] = stubs, values
        # Until a device is there, the runtime keeps the stub itself.
        is_handle = (values != 0) & ~np.isin(values.view(np.int64) - module.bias, np.frombuffer(stubs.stubs, np.int64))
        for at in np.flatnonzero(is_handle & (values != before) if of is stubs else is_handle).tolist():
            name = stubs.handle_name(at)
            if name is not None:
                yield int(values[at]), name

    def tell(self, handle: int, name: str) -> None:
        """Note a name by which records can be judged."""
        if len(self.told) < _MAX_JUDGES or handle in self.told:
            self.told[handle] = name


def _folder(module: Module) -> bytes | None:
    return None if module.file is None else os.path.dirname(module.file.path)
