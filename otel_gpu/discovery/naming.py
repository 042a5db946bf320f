"""Reads what programs were started with, and, for one that has no name of its own, which ancestor names it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..runtime.supervision import Health
from ..sandbox.parsers import Parsers
from .ancestors import find_ancestors
from .identification import Identification
from .process_info import ProcessInfo, ProcessInfoReader, start_of
from .program_names import may_need_name, names_others, needs_name, shortened

_MAX_KEPT = 1024
"""Ancestors that are kept, since many workers have the same."""


class NamingReader:
    """Supplies what processes were started with. Safe to use from several threads."""

    def __init__(self, parsers: Parsers) -> None:
        self._reader = ProcessInfoReader(parsers)
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, tuple[int, int] | None], ProcessInfo] = OrderedDict()

    def health(self) -> list[Health]:
        """Report how the threads are that wait for the children."""
        return self._reader.health()

    def complete(self, info: ProcessInfo, identification: Identification) -> None:
        """Supply, from another thread as a rule, what the process adds to what the kernel knows, and its name."""
        # At once: it may end while it is read.
        ancestors = find_ancestors(info.pid) if may_need_name(info) else []
        self._reader.complete(info, lambda found: self._supply(found, ancestors, identification))

    def supply(self, info: ProcessInfo, identification: Identification) -> None:
        """Supply what was read of a process, and, where it has no name, the nearest ancestor that has one."""
        self._supply(info, find_ancestors(info.pid) if needs_name(info) else [], identification)

    def close(self) -> None:
        """Read nothing more; idempotent."""
        self._reader.close()

    def _supply(self, info: ProcessInfo, ancestors: Sequence[ProcessInfo], identification: Identification) -> None:
        asks = bool(ancestors) and needs_name(info)
        identification.supply(info, more_follows=asks)
        if not asks:
            return
        answers: dict[int, ProcessInfo] = {}

        def take(found: ProcessInfo) -> None:
            answers[found.pid] = found
            for ancestor in ancestors:
                if (answer := answers.get(ancestor.pid)) is None:
                    return
                if names_others(answer):
                    identification.supply(replace(info, named_by=answer))
                    return
                if answer.unread is not None:
                    # Those behind it are not the nearest.
                    break
            identification.supply(info)

        for ancestor in ancestors:
            self._read(ancestor, take)

    def _read(self, info: ProcessInfo, take: Callable[[ProcessInfo], None]) -> None:
        """Report what an ancestor was started with."""
        key = info.pid, start_of(info.pid)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None:
            take(kept)
            return

        def keep(found: ProcessInfo) -> None:
            found = shortened(found)
            if found.unread is None:
                with self._lock:
                    self._kept[key] = found
                    while len(self._kept) > _MAX_KEPT:
                        self._kept.popitem(last=False)
            take(found)

        self._reader.complete(info, keep)
