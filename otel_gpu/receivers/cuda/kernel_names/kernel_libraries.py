"""Which kernels does a file that a process maps have? Remembered, else kept on disk, else read by a child without rights."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

from ....errors import OtelGpuError
from ....sandbox.address_spans import MAX_ADDRESS
from ....sandbox.batches import Outcome, each
from ....sandbox.files import FileId, MappedFile
from ....sandbox.parsers import Parsers, WorkError
from ....sandbox.work import GONE
from ....signals.structs import Frozen
from .cache import SymbolCache
from .launches import Module
from .stub_map import StubMap
from .stub_work import OUTLINES, STUBS, NamedStubs, Outline, outlines, stub_map

_log = logging.getLogger(__name__)
_CACHE_KIND = "stub-map"
_NOTHING = StubMap()
_NOT_NAMED = NamedStubs("")
_OUTLINE_S = 10.0
"""How long a file is taken for what it was: many programs that map the same ones come at once, and it may be written anew."""
_MAX_OUTLINES = 4_096


class _Seen(Frozen):
    """What a mapped file was, and when."""

    id: FileId
    outline: Outline
    at: float


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
        self._seen: OrderedDict[tuple[tuple[int, int], int, bytes], _Seen] = OrderedDict()
        """By device, inode and path."""
        self._lock = threading.Lock()
        self.unread = 0
        """Files whose kernels could not be read."""

    def modules(self, files: Sequence[MappedFile]) -> Iterator[Module]:
        """Yield mapped files, each with the kernels it is known to have; not always in their order.

        One that cannot be opened, or is no library, stands for itself alone and has none.
        """
        unseen, unopened = [], []
        for file in files:
            if (seen := self._seen_lately(file)) is None:
                unseen.append(file)
            else:
                yield self._placed(file, seen.id, seen.outline)
        for outcome in each(self._parsers, outlines, unseen, None, OUTLINES):
            file = unseen[outcome.number]
            if outcome.opened is None and outcome.error in GONE:
                unopened.append(file)
            else:
                yield self._module(file, outcome)
        if unopened:
            # Their processes have ended meanwhile.
            for outcome in each(self._parsers, outlines, [file.below(-1) for file in unopened], None, OUTLINES):
                yield self._module(unopened[outcome.number], outcome)

    def _seen_lately(self, file: MappedFile) -> _Seen | None:
        with self._lock:
            seen = self._seen.get(_key(file))
        return None if seen is None or time.monotonic() - seen.at > _OUTLINE_S else seen

    def _module(self, file: MappedFile, outcome: Outcome[Outline]) -> Module:
        if outcome.answer is None or outcome.opened is None or (found := outcome.opened.id) is None:
            return _alone(file)
        # What was opened may be another file than the mapping's, where a process changes its mappings meanwhile.
        if (found.device_numbers, found.inode) == (file.device, file.inode):
            with self._lock:
                self._seen[_key(file)] = _Seen(found, outcome.answer, time.monotonic())
                self._seen.move_to_end(_key(file))
                while len(self._seen) > _MAX_OUTLINES:
                    self._seen.popitem(last=False)
        return self._placed(file, found, outcome.answer)

    def _placed(self, file: MappedFile, found: FileId, outline: Outline) -> Module:
        if (place := _place(outline, file)) is None:
            return _alone(file)
        bias, extent = place
        with self._lock:
            stubs = self._known.get(found) if outline.has_device_code else _NOTHING
        return Module(file.start, file.end, bias, _name(file), stubs, extent, file, found)

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


def _key(file: MappedFile) -> tuple[tuple[int, int], int, bytes]:
    return file.device, file.inode, file.path


def _name(file: MappedFile) -> str:
    return os.path.basename(os.fsdecode(file.path))


def _alone(file: MappedFile) -> Module:
    return Module(file.start, file.end, file.start, _name(file), _NOTHING, (file.start, file.end), file)


def _place(outline: Outline, file: MappedFile) -> tuple[int, tuple[int, int]] | None:
    """Return a file's bias and its extent in the process; None where it has nothing at that place."""
    vaddr = outline.shape.code_vaddr(file.offset)
    if vaddr is None or not 0 <= outline.shape.base < outline.end < MAX_ADDRESS:
        return None
    bias = file.start - vaddr
    return bias, (bias + outline.shape.base, bias + outline.end)
