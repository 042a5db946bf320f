"""Which of the files that processes map are of interest? Each file is looked at once, by a child without rights."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from ..sandbox.batches import each
from ..sandbox.files import FileId, MappedFile
from ..sandbox.parsers import Parsers
from ..signals.structs import Frozen
from .libraries import CLASSIFICATION, Library, classify

_log = logging.getLogger(__name__)
_MAX_KNOWN = 16_384
_LIBRARY_S, _OTHER_S = 10.0, 60.0
"""How long a file is taken for what it was: it may be written anew where it lies."""


class _Key(Frozen):
    """A file as a mapping shows it. `generation` tells files apart that have the same inode one after the other."""

    device: tuple[int, int]
    inode: int
    generation: int
    path: bytes


class LibraryCatalogue:
    """Remembers what mapped files are. Safe to use from several threads."""

    def __init__(self, parsers: Parsers, is_told_to_stop: Callable[[], bool] = lambda: False) -> None:
        """`is_told_to_stop` is asked before each file that is looked at: on a busy host all of a process's take seconds."""
        self._parsers = parsers
        self._is_told_to_stop = is_told_to_stop
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, tuple[Library | None, float]] = OrderedDict()
        """What a file is, and when that was seen."""
        self._libraries: dict[FileId, Library] = {}

    def look_up(
        self, files: Sequence[MappedFile], generations: Sequence[int] = ()
    ) -> Iterator[tuple[MappedFile, Library]]:
        """Yield those of the files that are libraries of interest.

        `generations` are their inodes' generation numbers, 0 or missing where they are not known: then a file that was of
        no interest is looked at again, as it may be another by now.
        """
        unknown: list[tuple[MappedFile, _Key]] = []
        seen: set[_Key] = set()
        for n, file in enumerate(files):
            key = _Key(file.device, file.inode, generations[n] if n < len(generations) else 0, file.path)
            if key in seen:
                continue  # mapped in several parts
            seen.add(key)
            with self._lock:
                library, seen_at = self._known.get(key, (None, -math.inf))
            age_s = time.monotonic() - seen_at
            if age_s > _LIBRARY_S if library is not None else age_s > _OTHER_S or not key.generation:
                unknown.append((file, key))
            elif library is not None:
                yield file, library
        if unknown:
            yield from self._look_at(unknown)

    def forget(self, library: Library) -> None:
        """Drop a library that nobody has mapped any more."""
        with self._lock:
            self._libraries.pop(library.id, None)
            for key in [k for k, (known, _) in self._known.items() if known is not None and known.id == library.id]:
                del self._known[key]

    def _look_at(self, unknown: list[tuple[MappedFile, _Key]]) -> Iterator[tuple[MappedFile, Library]]:
        files = [file for file, _ in unknown]
        for outcome in each(self._parsers, classify, files, None, CLASSIFICATION):
            if self._is_told_to_stop():
                return
            file, key = unknown[outcome.number]
            if outcome.opened is None or outcome.opened.id is None or outcome.answer is None:
                _log.debug("%s of process %d is not looked at: %s", file.shown, file.pid, outcome.reason)
                continue
            library = outcome.answer.library(outcome.opened.id, file.shown)
            with self._lock:
                if library is not None:
                    library = self._libraries.setdefault(library.id, library)
                # What was opened may be another file than the mapping's, where a process changes its mappings meanwhile.
                if (outcome.opened.id.device_numbers, outcome.opened.id.inode) == (key.device, key.inode):
                    self._known[key] = library, time.monotonic()
                    self._known.move_to_end(key)
                    while len(self._known) > _MAX_KNOWN:
                        self._known.popitem(last=False)
            if library is not None:
                yield file, library
