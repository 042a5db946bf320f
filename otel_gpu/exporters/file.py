"""How does everything end up in files? One OTLP/JSON export request a line, as the Collector writes them."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from typing import TYPE_CHECKING

from ..errors import OtelGpuError
from . import ExporterStats, Payload
from .encode_json import JsonMetricsEncoder
from .settings import FileSettings, Signal
from .statistics import Tally

if TYPE_CHECKING:
    from ..model import SeriesStore

_log = logging.getLogger(__name__)


class FileExporter:
    """Appends metrics, traces and profiles to `DIR/metrics.jsonl`, `traces.jsonl` and `profiles.jsonl`.

    What was handed over is in the file when the method returns, whole or not at all: what could be
    written only in part, on a full disk, is taken back.
    """

    def __init__(self, settings: FileSettings, name: str = "file") -> None:
        """Make the directory; raises OtelGpuError when that cannot be."""
        self._directory = settings.path
        self._name = name
        self._encoder = JsonMetricsEncoder(settings.temporality)
        self._tally = Tally(f"export to {self._directory}", _log)
        self._lock = threading.Lock()  # signals come from different threads
        self._files: dict[Signal, int] = {}
        try:
            os.makedirs(self._directory, exist_ok=True)
        except OSError as error:
            raise OtelGpuError(
                f"the output directory {self._directory!r} cannot be made: {error.strerror}; name one that can"
            ) from error

    @property
    def name(self) -> str:
        return self._name

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        """Append the state of every series."""
        lines = self._encoder.encode(store, now_ns)
        # All at once: deltas of which some were written could neither be committed nor sent again.
        text = b"".join([line.body for line in lines])
        if text and self._write("metrics", text, sum(line.points for line in lines)):
            self._encoder.commit()

    def submit(self, signal: Signal, payload: Payload[bytes]) -> None:
        """Append one serialized `Export…ServiceRequest` of the signal."""
        from .otlp_json import request_type, to_json  # metrics do without protobuf

        line = to_json(request_type(signal).FromString(payload.body)) + "\n"
        self._write(signal, line.encode(), payload.points)

    def shutdown(self, timeout_s: float) -> None:  # noqa: ARG002 - nothing is waiting to be written
        """Close the files."""
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])

    def stats(self) -> ExporterStats:
        return self._tally.snapshot()

    def _write(self, signal: Signal, lines: bytes, points: int) -> bool:
        began = time.monotonic()
        try:
            with self._lock:
                _append(self._file(signal), lines)
        except OSError as error:
            self._tally.add(failed=points, requests=1, seconds=time.monotonic() - began)
            self._tally.down(f"{signal}.jsonl cannot be written: {error.strerror}")
            return False
        self._tally.add(sent=points, requests=1, seconds=time.monotonic() - began)
        self._tally.up()
        return True

    def _file(self, signal: Signal) -> int:
        file = self._files.get(signal)
        if file is None:
            path = os.path.join(self._directory, f"{signal}.jsonl")
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            file = self._files[signal] = os.open(path, flags, 0o644)
        return file


def _append(file: int, lines: bytes) -> None:
    """Write everything, or raise OSError and leave the file as it was."""
    state = os.fstat(file)
    rest = memoryview(lines)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        if stat.S_ISREG(state.st_mode) and len(rest) < len(lines):
            os.ftruncate(file, state.st_size)
        raise
