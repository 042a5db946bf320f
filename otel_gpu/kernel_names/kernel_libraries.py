"""Which kernels does a file that a process maps have? Remembered, else kept on disk, else read by a child without rights."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..address_spans import MAX_ADDRESS
from ..errors import OtelGpuError
from ..process.batches import Outcome, each
from ..process.files import FileId, MappedFile
from ..process.parsers import Parsers, WorkError
from ..process.work import GONE
from .cache import SymbolCache
from .launches import Module
from .stub_work import OUTLINES, STUBS, NamedStubs, Outline, outlines, stub_map
from .stubs import StubMap

_log = logging.getLogger(__name__)
_CACHE_KIND = "stub-map"
_NOTHING = StubMap()
_NOT_NAMED = NamedStubs("")


class _LostError(OtelGpuError):
    """Something is not kept any more that was said to be."""


class KernelLibraries:
    """The kernels of files. Safe to use from several threads."""

    def __init__(self, parsers: Parsers, cache: SymbolCache, before_reading: Callable[[], None]) -> None:
        """`before_reading` is called when a file is read for the first time, which takes up to a second of CPU."""
        self._parsers = parsers
        self._cache = cache
        self._before_reading = before_reading
        self._known: dict[FileId, StubMap] = {}
        self._lock = threading.Lock()
        self.unread = 0
        """Files whose kernels could not be read."""

    def modules(self, files: Sequence[MappedFile]) -> Iterator[Module]:
        """Yield mapped files, each with the kernels it is known to have; not always in their order.

        One that cannot be opened, or is no library, stands for itself alone and has none.
        """
        unopened = []
        for outcome in each(self._parsers, outlines, files, None, OUTLINES):
            file = files[outcome.number]
            if outcome.opened is None and outcome.error in GONE:
                unopened.append(file)
            else:
                yield self._module(file, outcome)
        if unopened:
            # Their processes have ended meanwhile.
            for outcome in each(self._parsers, outlines, [file.below(-1) for file in unopened], None, OUTLINES):
                yield self._module(unopened[outcome.number], outcome)

    def _module(self, file: MappedFile, outcome: Outcome[Outline]) -> Module:
        opened = outcome.opened
        name = os.path.basename(os.fsdecode(file.path))
        found = None if outcome.answer is None else _placed(outcome.answer, file)
        if found is None or outcome.answer is None or opened is None or opened.id is None:
            return Module(file.start, file.end, file.start, name, _NOTHING, (file.start, file.end), file)
        bias, extent = found
        with self._lock:
            stubs = self._known.get(opened.id) if outcome.answer.has_device_code else _NOTHING
        return Module(file.start, file.end, bias, name, stubs, extent, file, opened.id)

    def read(self, module: Module) -> StubMap:
        """Return the kernels of a module's file; none where they cannot be read, which is counted."""
        assert module.file is not None
        kept = self._cache.names(_CACHE_KIND)
        try:
            try:
                opened, stubs = self._read(module.file, kept)
            except _LostError:  # from the cache meanwhile, or it is damaged there
                opened, stubs = self._read(module.file, frozenset())
        except OtelGpuError as e:
            _log.debug("kernels in %s: %s", module.file.shown, e)
            self.unread += 1
            return _NOTHING
        with self._lock:
            self._known[opened] = stubs
        return stubs

    def keep_only(self, used: Iterable[StubMap]) -> None:
        """Forget the kernels of files that nobody uses any more."""
        numbers = {id(stubs) for stubs in used}
        with self._lock:
            self._known = {file: stubs for file, stubs in self._known.items() if id(stubs) in numbers}

    def _read(self, file: MappedFile, kept: frozenset[str]) -> tuple[FileId, StubMap]:
        with self._parsers.begin(stub_map, [file], kept, limits=STUBS) as job:
            (opened,) = job.open()
            if opened.id is None:
                raise WorkError(opened.reason)
            answers = job.answers()
            name = next(answers, _NOT_NAMED).name
            if name in kept:
                stubs = self._cache.read(name, _CACHE_KIND, StubMap)
            else:
                self._before_reading()
                stubs = next(answers, _NOT_NAMED).stubs
                if stubs is not None:
                    self._cache.write(name, _CACHE_KIND, stubs)
            if stubs is None or not stubs.is_sound():
                raise _LostError(f"what was worked out of {file.shown} is lost")
            return opened.id, stubs


def _placed(outline: Outline, file: MappedFile) -> tuple[int, tuple[int, int]] | None:
    """Return a file's bias and its extent in the process; None where it has nothing at that place."""
    vaddr = outline.shape.code_vaddr(file.offset)
    if vaddr is None or not 0 <= outline.shape.base < outline.end < MAX_ADDRESS:
        return None
    bias = file.start - vaddr
    return bias, (bias + outline.shape.base, bias + outline.end)
