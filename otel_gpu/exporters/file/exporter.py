"""How does everything end up in files? One OTLP/JSON export request a line, as the Collector writes them."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ...errors import OtelGpuError
from ...runtime.supervision import Component
from ...runtime.trusted_paths import check_file, open_directory
from ...signals import SIGNALS, Signal
from ...text import escaped
from .. import ExporterStats, PipelineExporter
from ..delivery.payload import Payload
from ..delivery.statistics import Operation, Outcomes, Tally
from ..settings import MAX_REQUEST_BYTES
from ..wire.metrics_json import JsonMetricsEncoder
from ..wire.spans_json import span_line_encoder
from .line_file import LineFile
from .settings import FileSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...signals.metrics import SeriesStore
    from ...signals.profiles import Profile
    from ...signals.spans import Span
    from ..batch import Batch

_log = logging.getLogger(__name__)
_MODE = 0o755


class FileExporter(PipelineExporter):
    """Appends metrics, traces and profiles to `DIR/metrics.jsonl`, `traces.jsonl` and `profiles.jsonl`.

    What was handed over is in the file when the method returns, whole or not at all: what could be
    written only in part, on a full disk, is taken back.
    """

    takes = frozenset(SIGNALS)

    def __init__(self, settings: FileSettings, name: str = "file") -> None:
        """Make the directory; raises OtelGpuError when that cannot be, or when a stranger has prepared a file in it."""
        super().__init__(name)
        self._path = settings.path
        self._settings = settings
        self._encoders: WeakKeyDictionary[SeriesStore, JsonMetricsEncoder] = WeakKeyDictionary()
        """By pipeline: what was built of the series of each is kept."""
        self._tally = Tally(f"export to {escaped(self._path)}", _log)
        self._spans = span_line_encoder(note=Component(f"spans to {escaped(self._path)}").note)
        self._lock = threading.Lock()  # signals come from different threads
        self._files = {
            signal: LineFile(f"{signal}.jsonl", settings.rotation, append=settings.append) for signal in SIGNALS
        }
        self._directory: int | None = None
        try:
            self._directory = open_directory(self._path, make=_MODE)
            for file in self._files.values():
                check_file(file.name, self._directory)
        except OSError as error:
            where = "" if self._directory is None else f"{error.filename}: "
            self.shutdown(0)
            raise OtelGpuError(
                f"the output directory {self._path!r} cannot be used: {where}{error.strerror}; name another one"
            ) from error

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        """Append the state of every series."""
        encoder = self._encoders.get(store)
        if encoder is None:
            encoder = self._encoders[store] = JsonMetricsEncoder(
                self._settings.temporality, histograms=self._settings.histograms
            )
        if self._append_lines("metrics", encoder.encode(store, now_ns)):
            # Deltas that could not be written come with the next export, but not when others of this one were.
            encoder.commit()

    def export_spans(self, batch: Batch[Span]) -> None:
        """Append spans."""
        encoded = self._spans.encode(batch.items)
        if encoded.lost:
            self._tally.add("traces", failed=encoded.lost)
        self._append_lines("traces", encoded.payloads)

    def export_profiles(self, batch: Batch[Profile]) -> None:
        """Append profiles."""
        from ..wire.request_json import json_payload  # metrics do without protobuf

        encoded = batch.requests(MAX_REQUEST_BYTES)
        if encoded.lost:
            self._tally.add("profiles", failed=encoded.lost)
        for payload in encoded.payloads:
            line = json_payload("profiles", payload)
            self._write("profiles", line.body, line.points)

    def shutdown(self, timeout_s: float) -> None:  # noqa: ARG002 - nothing is waiting to be written
        """Close the files."""
        with self._lock:
            for file in self._files.values():
                file.close()
            self._close_directory()

    def stats(self) -> ExporterStats:
        return self._tally.snapshot()

    def outcomes(self) -> Outcomes:
        return Outcomes(self._tally.exported())

    def take_operations(self) -> Iterator[Operation]:
        return self._tally.take_operations()

    def _append_lines(self, signal: Signal, lines: list[Payload[bytes]]) -> int:
        """Append lines, as many at once as may stand in one file; return how many could be written."""
        written = 0
        for some in self._portions(signal, lines):
            if not self._write(signal, b"".join([line.body for line in some]), sum(line.points for line in some)):
                self._tally.add(signal, failed=sum(line.points for line in lines[written + len(some) :]))
                break
            written += len(some)
        return written

    def _portions(self, signal: Signal, lines: list[Payload[bytes]]) -> Iterator[list[Payload[bytes]]]:
        """Yield all lines at once; where files are to stay small, as many as may stand in one."""
        limit = self._files[signal].max_bytes
        some: list[Payload[bytes]] = []
        size = 0
        for line in lines:
            if some and limit is not None and size + line.size_bytes > limit:
                yield some
                some, size = [], 0
            some.append(line)
            size += line.size_bytes
        if some:
            yield some

    def _write(self, signal: Signal, lines: bytes, points: int) -> bool:
        file = self._files[signal]
        began = time.monotonic()
        try:
            with self._lock:
                self._append(file, lines)
        except OSError as error:
            why = type(error).__qualname__
            self._tally.note(Operation(signal, time.monotonic() - began, why))
            self._tally.add(signal, failed=points, requests=1, error_type=why)
            self._tally.down(f"{file.name} cannot be written: {error.strerror}")
            return False
        self._tally.note(Operation(signal, time.monotonic() - began))
        self._tally.add(signal, sent=points, requests=1)
        self._tally.up()
        if file.trouble is not None:
            self._tally.complain(f"{file.name}: {file.trouble}")
        return True

    def _append(self, file: LineFile, lines: bytes) -> None:
        if self._directory is not None:
            try:
                file.write(lines, self._directory)
            except FileNotFoundError:  # the directory was removed
                self._close_directory()
            else:
                return
        self._directory = open_directory(self._path, make=_MODE)
        file.write(lines, self._directory)

    def _close_directory(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            os.close(directory)
