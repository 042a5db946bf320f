"""Which spans of its own has a program? Where it says so is looked for once it is followed, and again as it serves requests.

A program imports its tracing, or loads what publishes, whenever it likes, and no event tells of it. So it is looked at again
until something is found: often at first, then at growing distances.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
import numpy as np

from ...bpf.abi.requests import SPAN_SOURCE, SPAN_TYPES
from ...bpf.abi.unwinding import ThreadStatePlace
from ...bpf.maps import BpfMap
from ...bpf.pinned import Pinned, UnexpectedMapError
from ...discovery.program_id import ProgramId
from ...errors import OtelGpuError
from ...runtime.fair_pool import FairPool
from ...runtime.supervision import Worker
from ...sandbox.elf_thread_locals import ThreadLocal
from ...sandbox.files import MappedFile
from ...sandbox.mappings import executable_mappings
from ...sandbox.memory import MemoryFiles
from ...sandbox.parsers import Parsers
from ...signals.structs import Record
from .follow_work import Image
from .span_work import LOOKING, SpanPlaces, SpanRequest, look_for_spans

_log = logging.getLogger(__name__)

OBI_MAP = "/sys/fs/bpf/otel/traces_ctx_v1"
"""Where OBI pins its map: devdocs/trace-profile-correlation.md of opentelemetry-ebpf-instrumentation."""
_OBI_TYPE, _OBI_KEY, _OBI_VALUE = 9, 8, 24
"""BPF_MAP_TYPE_LRU_HASH; u64 pid_tgid; a trace id and a span id."""
_OBI_AGAIN_S = 5.0
_STEP_S = 0.25
_FIRST_AGAIN_S, _LAST_AGAIN_S = 0.5, 30.0
_YOUNG_S = 10.0
"""So long after it is followed, or has mapped more code, a program is looked at often."""
_MOST_FILES = 150
_MAX_SILENT = 4096
_FileKey = tuple[tuple[int, int], int]


class _Known(Record):
    """One process, as far as it was looked at."""

    pid: int
    exec_id: int
    modules: int = 0
    places: SpanPlaces = msgspec.field(default_factory=SpanPlaces)
    young_until: float = 0.0
    due: float = 0.0
    wait_s: float = _FIRST_AGAIN_S
    is_looked_at: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether there is no more to find."""
        return self.places.span is not None and self.places.span.has_sdk


class OwnSpans:
    """Tells the kernel where programs say which span is current. Safe to use from several threads."""

    def __init__(
        self,
        parsers: Parsers,
        sources: BpfMap,
        obi: BpfMap,
        running: Callable[[int], tuple[int, object] | None],
    ) -> None:
        """`running` gives the exec_id of the program that runs under a pid."""
        self._parsers = parsers
        self._sources, self._obi = sources, obi
        self._obi_path, self._obi_id, self._obi_due = OBI_MAP, 0, 0.0
        self._running = running
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}
        self._silent: dict[_FileKey, None] = {}
        """Files that publish nothing."""
        self._looks = FairPool("own spans", at_once=1, most=2)
        self._worker = Worker("own spans due", self._step)
        self._worker.start()

    @property
    def workers(self) -> list[Worker]:
        """The threads that look at processes."""
        return [self._worker, *self._looks.workers]

    def close(self, timeout_s: float = 5.0) -> None:
        """Look at nothing any more; idempotent."""
        self._worker.stop(timeout_s)
        self._looks.close(timeout_s)

    def observe(self, pid: int) -> None:
        """Look at a process that is followed, or has mapped more code."""
        if (running := self._running(pid)) is None:
            return
        with self._lock:
            known = self._known.get(pid)
            if known is None or known.exec_id != running[0]:
                known = self._known[pid] = _Known(pid, running[0])
            known.due, known.wait_s = 0.0, _FIRST_AGAIN_S
            known.young_until = time.monotonic() + _YOUNG_S

    def read_obi(self, path: str) -> None:
        """Have OBI's map read from where it is pinned, if not at the usual place."""
        self._obi_path, self._obi_due = path, 0.0
        self._look_for_obi()

    def forget(self, program: ProgramId) -> None:
        """Say that a program has ended; its process may run another one by now."""
        with self._lock:
            known = self._known.get(program.pid)
            if known is None or known.exec_id != program.exec_id:
                return
            del self._known[program.pid]
            with suppress(OSError):
                self._sources.delete(program.pid.to_bytes(4, "little"))

    def knows(self, pid: int) -> SpanPlaces | None:
        """Return what was found of a process so far."""
        known = self._known.get(pid)
        return known.places if known is not None else None

    def _step(self) -> float:
        now = time.monotonic()
        with self._lock:
            due = [k for k in self._known.values() if not k.is_complete and not k.is_looked_at and k.due <= now]
            for known in due:
                known.is_looked_at = True
        for known in due:
            self._looks.submit(known.pid, lambda known=known: self._look(known))  # type: ignore[misc]
        if now >= self._obi_due:
            self._obi_due = now + _OBI_AGAIN_S
            self._look_for_obi()
        return _STEP_S

    def _look(self, known: _Known) -> None:
        try:
            self._look_at(known)
        except (OtelGpuError, OSError, StopIteration) as e:
            _log.debug("process %d: its own spans are not known: %s", known.pid, e)
        finally:
            now = time.monotonic()
            known.due = now + known.wait_s
            if now > known.young_until:
                known.wait_s = min(2 * known.wait_s, _LAST_AGAIN_S)
            known.is_looked_at = False

    def _look_at(self, known: _Known) -> None:
        mapped = [f for f in executable_mappings(self._parsers, known.pid) if f.inode]
        files = [f for f in _once(mapped) if _is_python(f) or _key(f) not in self._silent][:_MOST_FILES]
        images = tuple(Image(f.start, f.end, f.offset, f.path) for f in files)
        pythons = tuple(n for n, f in enumerate(files) if _is_python(f))
        request = SpanRequest(images, pythons, known.modules)
        shown = MemoryFiles.of(known.pid)
        found = next(iter(self._parsers.run(look_for_spans, [*shown, *files], request, limits=LOOKING)))
        for at in found.silent:
            if 0 <= at < len(files):
                if len(self._silent) >= _MAX_SILENT:
                    self._silent.pop(next(iter(self._silent)))
                self._silent[_key(files[at])] = None
        if found.reason:
            _log.info("process %d: spans of its own are not read: %s", known.pid, found.reason)
        known.modules = found.modules
        published = found.published or known.places.published
        with self._lock:
            if self._known.get(known.pid) is not known:
                return
            known.places = SpanPlaces(published, found.span or known.places.span, found.modules)
            self._tell(known)

    def _tell(self, known: _Known) -> None:
        published, span = known.places.published, known.places.span
        if published is None and span is None:
            return
        value = np.zeros((), SPAN_SOURCE)
        value["exec_id"] = known.exec_id
        if published is not None:
            _put_published(value, published)
        if span is not None:
            for name in ("minor", "variable", "variable_hash", "server", "true_object", "tuple_items"):
                value[name] = getattr(span, name)
            for name in ("key", "context", "kind", "parent", "start"):
                if (of := getattr(span, name)) is not None:
                    value[name] = of.text, of.hash
            for number, type_ in enumerate(span.types[:SPAN_TYPES]):
                value["types"][number] = type_.type, type_.keys, type_.place
        self._sources.put(known.pid.to_bytes(4, "little"), value.tobytes())

    def _look_for_obi(self) -> None:
        """Have the kernel read OBI's map, if there is one that is as it has to be."""
        try:
            with Pinned(self._obi_path, _OBI_TYPE, _OBI_KEY, _OBI_VALUE) as pinned:
                if pinned.id != self._obi_id:
                    self._obi.put((0).to_bytes(4, "little"), pinned.fd.to_bytes(4, "little"))
                    self._obi_id = pinned.id
        except UnexpectedMapError as e:
            _log.warning("%s", e)
            self._obi_due = float("inf")
        except OSError as e:
            _log.debug("%s is not read: %s", self._obi_path, e)


def _put_published(value: np.ndarray[tuple[()], np.dtype[np.void]], published: ThreadLocal) -> None:
    value["published"] = ThreadStatePlace.DTV if published.module else ThreadStatePlace.SLOT
    value["published_offset"], value["published_module"] = published.offset, published.module


def _is_python(file: MappedFile) -> bool:
    name = file.path.rpartition(b"/")[2]
    return name.startswith((b"libpython3", b"python3"))


def _key(file: MappedFile) -> _FileKey:
    return file.device, file.inode


def _once(files: Iterable[MappedFile]) -> list[MappedFile]:
    """Return the first mapping of each file."""
    found: dict[_FileKey, MappedFile] = {}
    for file in files:
        found.setdefault(_key(file), file)
    return list(found.values())
