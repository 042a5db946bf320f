"""Which libraries are probed? Each file once, however many processes map it and by whatever path, for as long as it is used."""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from ..discovery.libraries import Library
from ..errors import AttachError
from ..runtime.shortage import descriptor_limit, descriptors_left, is_shortage
from ..sandbox.files import File, FileId
from ..sandbox.parsers import Parsers, WorkError
from ..signals.structs import Frozen
from .attach import AttachedLibrary, Linker, PlannedProbe, descriptors_for
from .planning import PLANNING, Plan, PlanRequest, plan_library

_log = logging.getLogger(__name__)
_SPARE_DESCRIPTORS = 48
"""Left for files, connections and children."""

_OWN_BITS = (1 << 56) - 1
"""Of an inode's number; an overlay of several file systems keeps the layer's number in the bits above (xino)."""

Request = Callable[[Library], PlanRequest | None]
"""What is to be probed in a library; None for nothing."""
LeftOut = Callable[[PlannedProbe], PlannedProbe]


class _Postponed(Frozen):
    """A library that waits for descriptors, or memory."""

    library: Library
    file: File
    descriptors: int
    """How many its probes take."""


class ProbedLibraries:
    """Places the probes of libraries and takes them away. Safe to use from several threads."""

    def __init__(
        self,
        parsers: Parsers,
        linker: Linker,
        request: Request,
        *,
        left_out: LeftOut = lambda probe: probe,
        placing: Callable[[Library], AbstractContextManager[int]] = lambda _library: nullcontext(0),
    ) -> None:
        """`left_out` may take planned probes out again; probes are placed within `placing`, which yields the library's number."""
        self._parsers = parsers
        self._linker = linker
        self._request = request
        self._left_out = left_out
        self._placing = placing
        self._lock = threading.Lock()
        self._locks: dict[int, threading.Lock] = defaultdict(threading.Lock)
        """By the inode's number: what may be the same file is not probed by two threads at once."""
        self._probed: dict[FileId, AttachedLibrary] = {}
        self._postponed: dict[FileId, _Postponed] = {}
        self._told: set[FileId] = set()
        """Of which the log says that they are postponed."""
        self._closed = False
        self._places_no_more = threading.Event()

    def attach(self, library: Library, file: File) -> AttachedLibrary | None:
        """Place the probes in a library, once; None where there are none to place, or they cannot be."""
        request = self._request(library)
        if request is None:
            return None
        with self._lock:
            lock = self._locks[_number(library.id)]
        with lock:
            with self._lock:
                known = self._probed.get(library.id)
                # To plan is most of the work, and what comes then would place nothing.
                if known is not None or self._closed or self._places_no_more.is_set():
                    return known
                others = [(i, a) for i, a in self._probed.items() if _may_be_the_same(i, library.id)]
            try:
                return self._attach(library, file, request, others)
            except (WorkError, AttachError, OSError) as e:
                if is_shortage(e):
                    self._postpone(library, file, 0)
                else:
                    _log.warning("cannot attach to %s: %s", library.path, e)
                return None

    def retry(self) -> None:
        """Place the probes for which there was no room, where there is some now."""
        with self._lock:
            waiting = list(self._postponed.values())
        for postponed in waiting:
            if postponed.descriptors > descriptors_left() - _SPARE_DESCRIPTORS:
                continue
            with self._lock:
                # While the others were probed the last program that used it may have ended.
                is_used = self._postponed.get(postponed.library.id) is postponed
                if is_used:
                    del self._postponed[postponed.library.id]
            if is_used:
                self.attach(postponed.library, postponed.file)

    def detach(self, library: Library) -> None:
        """Take the probes of a library away that nobody uses any more."""
        with self._lock:
            self._postponed.pop(library.id, None)
            self._told.discard(library.id)
            attached = self._probed.pop(library.id, None)
            if attached is None or attached in self._probed.values():
                return
            self._locks.pop(_number(library.id), None)
        attached.close()
        _log.info("took %d probes out of %s: nothing uses it any more", attached.attached, attached.path)
        self.retry()

    def place_no_more(self) -> None:
        """Place nothing that is not in place yet, without a wait."""
        self._places_no_more.set()

    def close(self) -> None:
        """Take all probes away; idempotent."""
        with self._lock:
            self._closed = True
            probed, self._probed = set(self._probed.values()), {}
        for attached in probed:
            attached.close()

    def probes(self) -> tuple[int, dict[str, int]]:
        """Return how many probes are in place, and how many failed, by reason."""
        failed: dict[str, int] = defaultdict(int)
        with self._lock:
            probed = set(self._probed.values())
            if self._postponed:
                failed["no descriptors or memory left"] = len(self._postponed)
        for attached in probed:
            for reason in attached.failures.values():
                failed[reason] += 1
        return sum(attached.attached for attached in probed), dict(failed)

    def _attach(
        self, library: Library, file: File, request: PlanRequest, others: Sequence[tuple[FileId, AttachedLibrary]]
    ) -> AttachedLibrary | None:
        with self._parsers.begin(
            plan_library, [file], request, limits=PLANNING, keep=True, execute=bool(others)
        ) as job:
            plans = list(job.answers())
            if not plans or job.opened[0].id != library.id:
                reason = job.opened[0].reason or "it has been changed or replaced since it was mapped"
                _log.warning("cannot attach to %s: %s", library.path, reason)
                return None
            probes = [self._left_out(p) for p in plans[0].probes]
            for known, attached in others:
                if _is_placed(plans[0], attached):
                    # A file that is probed, by another identity: an overlay of the same layer, or its name was changed.
                    with self._lock:
                        self._probed[library.id] = attached
                    return attached
                if (known.device, known.inode) == (library.id.device, library.id.inode):
                    _log.warning("%s was written anew where it lies: its probes are placed anew", library.path)
                    self._forget(attached)
            needed = descriptors_for(probes, self._linker)
            if needed > descriptors_left() - _SPARE_DESCRIPTORS:
                self._postpone(library, file, needed)
                return None
            with self._placing(library) as number:
                attached = AttachedLibrary(
                    library.path,
                    [probe.of_library(number) for probe in probes],
                    self._linker,
                    f"/proc/self/fd/{job.kept[0]}",
                    self._places_no_more.is_set,
                )
        with self._lock:
            if self._closed:
                attached.close()
                return None
            self._probed[library.id] = attached
            self._told.discard(library.id)
        _log.info("attached %d probes to %s", attached.attached, library.path)
        return attached

    def _forget(self, attached: AttachedLibrary) -> None:
        with self._lock:
            for known in [i for i, a in self._probed.items() if a is attached]:
                del self._probed[known]
        attached.close()

    def _postpone(self, library: Library, file: File, needed: int) -> None:
        """Keep in mind what there is no room for now: probes that are placed by halves count wrongly."""
        with self._lock:
            self._postponed[library.id] = _Postponed(library, file, needed)
            is_told = library.id in self._told
            self._told.add(library.id)
        if not is_told:
            _log.warning(
                "no probes on %s yet: they take %s, and %d of %d are left besides %d spare ones; it is tried again; raise "
                "the limit (LimitNOFILE, ulimit -n), or that of memory",
                library.path,
                f"{needed} descriptors" if needed else "descriptors or memory",
                max(descriptors_left() - _SPARE_DESCRIPTORS, 0),
                descriptor_limit(),
                _SPARE_DESCRIPTORS,
            )


def _may_be_the_same(known: FileId, new: FileId) -> bool:
    """Tell whether two identities may be one file: changed since, or seen through an overlay.

    An overlay shows the file of a layer under a device of its own, and its inode's number, or that with bits on top (xino).
    """
    is_overlay = not os.major(known.device) or not os.major(new.device)
    return _number(known) == _number(new) and (known.device == new.device or is_overlay)


def _number(id: FileId) -> int:
    return id.inode & _OWN_BITS


def _is_placed(plan: Plan, attached: AttachedLibrary) -> bool:
    """Tell whether the kernel shows the probes of a library in the file that was planned."""
    sites = {p.offset for p in plan.probes if p.offset is not None}
    return attached.attached > 0 and plan.placed >= attached.attached and sites >= attached.sites
