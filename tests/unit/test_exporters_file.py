from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_gpu.errors import OtelGpuError
from otel_gpu.exporters.fan_out import profiles_to
from otel_gpu.exporters.file.exporter import FileExporter
from otel_gpu.exporters.file.line_file import LineFile
from otel_gpu.exporters.file.settings import FileSettings, RotationSettings
from otel_gpu.exporters.wire.request_json import to_json
from otel_gpu.runtime.supervision import Component
from otel_gpu.runtime.trusted_paths import open_directory
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes
from otel_gpu.signals.profiles import SpanLink
from tests.faults import failing
from tests.unit.profile_examples import training

CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
WAIT = MetricSpec("wait", "s", Instrument.COUNTER, "Waits.", floating=True)
COPIES = MetricSpec("copies", "By", Instrument.HISTOGRAM, "Copies.")
PROCESS = Resource(attributes({"service.name": "trän", "process.pid": 7}))


def store_of(n: int = 1) -> SeriesStore:
    store = SeriesStore()
    store.fold([Measurement(PROCESS, CALLS, attributes(k=f"k{i}"), i + 1) for i in range(n)], 1_000)
    return store


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def disk_full_at(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as a full disk would."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)


def test_metrics_are_written_as_the_collector_writes_them(tmp_path: Path) -> None:
    store = store_of()
    store.fold(
        [Measurement(PROCESS, WAIT, (), 0.5), Measurement(PROCESS, COPIES, (), Buckets({2: 1, 4: 2}, 40))], 1_000
    )
    exporter = FileExporter(FileSettings(str(tmp_path / "new" / "dir")))

    exporter.export_metrics(store, 2_000)
    exporter.shutdown(1)

    (request,) = lines(tmp_path / "new" / "dir" / "metrics.jsonl")
    (of_resource,) = request["resourceMetrics"]
    assert of_resource["resource"]["attributes"] == [
        {"key": "process.pid", "value": {"intValue": "7"}},
        {"key": "service.name", "value": {"stringValue": "trän"}},
    ]
    calls, wait, copies = of_resource["scopeMetrics"][0]["metrics"]
    assert calls["sum"] == {
        "aggregationTemporality": 2,
        "isMonotonic": True,
        "dataPoints": [
            {
                "attributes": [{"key": "k", "value": {"stringValue": "k0"}}],
                "startTimeUnixNano": "1000",
                "timeUnixNano": "2000",
                "asInt": "1",
            }
        ],
    }
    assert wait["sum"]["dataPoints"][0]["asDouble"] == 0.5
    (point,) = copies["exponentialHistogram"]["dataPoints"]
    assert (point["count"], point["sum"]) == ("3", 40.0)
    assert point["positive"] == {"offset": 2, "bucketCounts": ["1", "0", "2"]}


def test_each_export_appends_a_line(tmp_path: Path) -> None:
    exporter = FileExporter(FileSettings(str(tmp_path)))
    exporter.export_metrics(store_of(), 2_000)
    exporter.shutdown(1)

    later = FileExporter(FileSettings(str(tmp_path)))
    later.export_metrics(store_of(), 3_000)

    assert len(lines(tmp_path / "metrics.jsonl")) == 2
    assert later.stats().sent_points == 1


def test_ids_are_hexadecimal_and_enums_are_integers() -> None:
    traces = ExportTraceServiceRequest()
    span = traces.resource_spans.add().scope_spans.add().spans.add(kind=2, name="s")
    span.trace_id, span.span_id, span.parent_span_id = bytes(range(16)), bytes(range(8)), b"\xff" * 8
    span.links.add(trace_id=b"\xaa" * 16, span_id=b"\xbb" * 8)
    span.attributes.add(key="traceId").value.string_value = "not an id"

    written = json.loads(to_json(traces))["resourceSpans"][0]["scopeSpans"][0]["spans"][0]

    assert (written["traceId"], written["spanId"]) == (bytes(range(16)).hex(), bytes(range(8)).hex())
    assert (written["parentSpanId"], written["kind"]) == ("ff" * 8, 2)
    assert written["links"] == [{"traceId": "aa" * 16, "spanId": "bb" * 8}]
    assert written["attributes"] == [{"key": "traceId", "value": {"stringValue": "not an id"}}]


def test_profiles_are_lines_whose_ids_are_hexadecimal(tmp_path: Path) -> None:
    exporter = FileExporter(FileSettings(str(tmp_path)))
    link = SpanLink(b"\xaa" * 16, b"\xbb" * 8)
    linked = replace(training(), samples=tuple(replace(sample, link=link) for sample in training().samples))

    profiles_to([exporter], Component("profiles")).export([linked])

    (request,) = lines(tmp_path / "profiles.jsonl")
    assert {"traceId": "aa" * 16, "spanId": "bb" * 8} in request["dictionary"]["linkTable"]
    [profile] = request["resourceProfiles"][0]["scopeProfiles"][0]["profiles"]
    assert len(bytes.fromhex(profile["profileId"])) == 16
    assert exporter.stats().sent_points == len(linked.samples)


def test_directory_that_cannot_be_made_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OtelGpuError, match="output directory"):
        FileExporter(FileSettings(str(tmp_path / "file" / "dir")))


def test_full_disk_is_counted_and_said_once_and_leaves_whole_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    exporter = FileExporter(FileSettings(str(tmp_path)))
    exporter.export_metrics(store_of(), 2_000)
    size = os.path.getsize(tmp_path / "metrics.jsonl")

    with disk_full_at(size + 100):
        exporter.export_metrics(store_of(), 3_000)
        exporter.export_metrics(store_of(), 4_000)
    failed = exporter.stats()
    exporter.export_metrics(store_of(), 5_000)

    assert (failed.failed_points, failed.sent_points) == (2, 1)
    assert "File too large" in str(failed.last_error)
    assert len(lines(tmp_path / "metrics.jsonl")) == 2
    assert len(caplog.records) == 2
    assert caplog.records[1].getMessage().endswith("works again")


def test_delta_that_could_not_be_written_comes_with_the_next_line(tmp_path: Path) -> None:
    exporter = FileExporter(FileSettings(str(tmp_path), "delta"))
    store = store_of()
    with disk_full_at(10):
        exporter.export_metrics(store, 2_000)

    exporter.export_metrics(store, 3_000)

    (request,) = lines(tmp_path / "metrics.jsonl")
    (metric,) = request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    assert metric["sum"]["aggregationTemporality"] == 1
    assert metric["sum"]["dataPoints"][0]["asInt"] == "1"


def plant(kind: str, path: Path) -> None:
    """Put what a stranger might put there in the place of a file."""
    if kind == "link":
        path.symlink_to("victim")
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "name":
        os.link(path.parent / "victim", path)
    else:
        path.touch()
        os.chown(path, 12345, 0)


KINDS = [
    "link",
    "FIFO",
    "name",
    pytest.param("owner", marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["metrics.jsonl", "profiles.jsonl"])
def test_a_planted_file_is_an_error_at_once(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / "victim").write_text("precious")
    plant(kind, tmp_path / name)

    with pytest.raises(OtelGpuError, match=rf"output directory .* cannot be used: {name}: ") as failure:
        FileExporter(FileSettings(str(tmp_path)))

    assert failure.value.exit_code == 1
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_planted_later_is_a_counted_failure(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "victim").write_text("precious")
    exporter = FileExporter(FileSettings(str(tmp_path)))
    exporter.export_metrics(store_of(), 2_000)
    (tmp_path / "metrics.jsonl").unlink()
    plant(kind, tmp_path / "metrics.jsonl")

    exporter.export_metrics(store_of(), 3_000)

    assert (exporter.stats().sent_points, exporter.stats().failed_points) == (1, 1)
    assert "metrics.jsonl cannot be written: " in caplog.text
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_file_that_was_moved_away_or_removed_begins_anew(tmp_path: Path) -> None:
    exporter = FileExporter(FileSettings(str(tmp_path / "out")))
    for now, leave in enumerate(
        (lambda: None, (tmp_path / "out" / "metrics.jsonl").unlink, remove_all(tmp_path / "out"))
    ):
        leave()
        exporter.export_metrics(store_of(), now)

    assert len(lines(tmp_path / "out" / "metrics.jsonl")) == 1
    assert exporter.stats().sent_points == 3


def remove_all(directory: Path):
    def remove() -> None:
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()

    return remove


def test_earlier_lines_are_kept_unless_told_otherwise(tmp_path: Path) -> None:
    for append, expected in ((True, 1), (True, 2), (False, 2)):
        exporter = FileExporter(FileSettings(str(tmp_path), append=append))
        exporter.export_metrics(store_of(), 2_000)
        if not append:
            exporter.export_metrics(store_of(), 3_000)
        exporter.shutdown(1)
        assert len(lines(tmp_path / "metrics.jsonl")) == expected


@pytest.mark.parametrize("torn", [b"", b'{"half', b"x" * 200_000, b'{"a":1}\n{"half'])
def test_a_line_that_a_killed_agent_did_not_finish_is_removed(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"whole":1}\n' + torn)
    exporter = FileExporter(FileSettings(str(tmp_path)))

    exporter.export_metrics(store_of(), 2_000)

    found = lines(tmp_path / "metrics.jsonl")
    assert (found[0], list(found[-1])) == ({"whole": 1}, ["resourceMetrics"])
    assert len(found) == 2 + torn.count(b"\n")


def test_what_another_agent_has_not_finished_yet_is_left_to_it(tmp_path: Path) -> None:
    other = os.open(tmp_path / "metrics.jsonl", os.O_WRONLY | os.O_CREAT, 0o644)
    fcntl.flock(other, fcntl.LOCK_SH)
    os.write(other, b'{"half')
    exporter = FileExporter(FileSettings(str(tmp_path)))

    exporter.export_metrics(store_of(), 2_000)

    assert (tmp_path / "metrics.jsonl").read_bytes().startswith(b'{"half{"resourceMetrics"')
    os.close(other)


MB = 1 << 20
NOON = 1_795_262_691.123
"""2026-11-21T12:04:51.123 UTC."""


class Clock:
    """The time of day, as a test sets it."""

    def __init__(self, now_s: float = NOON) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def written(directory: Path) -> list[str]:
    """Return every line, oldest file first, each of which must be whole."""
    names = sorted(os.listdir(directory), key=lambda name: (name == "metrics.jsonl", name))
    text = b"".join((directory / name).read_bytes() for name in names)
    assert text.endswith(b"\n") or not text
    return [json.loads(line)["n"] for line in text.splitlines()]


def line(n: int, size: int = 400_000) -> bytes:
    return json.dumps({"n": n}).encode().ljust(size - 1) + b"\n"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = open_directory(tmp_path)
    yield descriptor
    os.close(descriptor)


def test_a_full_file_gets_a_name_with_the_time_and_a_new_one_begins(tmp_path: Path, directory: int) -> None:
    clock = Clock()
    file = LineFile("metrics.jsonl", RotationSettings(max_megabytes=1), clock=clock)

    for n in range(6):
        file.write(line(n), directory)
        clock.now_s += 60
    file.close()

    assert sorted(os.listdir(tmp_path)) == [
        "metrics-2026-11-21T12-06-51.123.jsonl",
        "metrics-2026-11-21T12-08-51.123.jsonl",
        "metrics.jsonl",
    ]
    assert all(path.stat().st_size <= MB for path in tmp_path.iterdir())
    assert written(tmp_path) == list(range(6))


def test_the_time_in_the_name_is_local_when_asked_for(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "XXX-05:30")
    time.tzset()
    try:
        file = LineFile("metrics.jsonl", RotationSettings(1, localtime=True), clock=Clock())
        for n in range(3):
            file.write(line(n), directory)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert "metrics-2026-11-21T17-34-51.123.jsonl" in os.listdir(tmp_path)


def test_a_file_of_an_earlier_run_counts(tmp_path: Path, directory: int) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(line(0) + line(1))

    LineFile("metrics.jsonl", RotationSettings(1)).write(line(2), directory)

    assert len(os.listdir(tmp_path)) == 2
    assert written(tmp_path) == [0, 1, 2]


def test_no_old_file_is_overwritten_whatever_the_clock_says(tmp_path: Path, directory: int) -> None:
    clock = Clock()
    file = LineFile("metrics.jsonl", RotationSettings(1), clock=clock)

    for n in range(12):
        file.write(line(n, 600_000), directory)
        clock.now_s -= n % 3 == 2

    assert len(os.listdir(tmp_path)) == 12
    assert sorted(written(tmp_path)) == list(range(12))


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (RotationSettings(1, max_backups=3), 3),
        (RotationSettings(1, max_backups=0), 11),
        (RotationSettings(1, max_days=2), 3),
        (RotationSettings(1, max_days=2, max_backups=1), 1),
    ],
)
def test_old_files_go_by_number_and_age(tmp_path: Path, directory: int, settings: RotationSettings, kept: int) -> None:
    others = {
        "metrics-2026-11-21.jsonl",
        "metrics-2020-13-01T00-00-00.000.jsonl",
        "traces-2020-01-01T00-00-00.000.jsonl",
    }
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / "metrics-2020-01-01T00-00-00.000.jsonl").mkdir()
    clock = Clock()
    file = LineFile("metrics.jsonl", settings, clock=clock)

    for n in range(12):
        file.write(line(n, 600_000), directory)
        clock.now_s += 86_400

    names = {name for name in os.listdir(tmp_path) if re.fullmatch(r"metrics-202[67]-.*\..*\.jsonl", name)}
    assert len(names) == kept
    assert others < set(os.listdir(tmp_path))
    assert file.trouble is None


def test_old_files_go_at_the_start_too(tmp_path: Path, directory: int) -> None:
    for day in range(1, 10):
        (tmp_path / f"metrics-2026-11-0{day}T00-00-00.000.jsonl").touch()

    LineFile("metrics.jsonl", RotationSettings(1, max_backups=2)).write(line(0), directory)

    assert sorted(os.listdir(tmp_path)) == [
        "metrics-2026-11-08T00-00-00.000.jsonl",
        "metrics-2026-11-09T00-00-00.000.jsonl",
        "metrics.jsonl",
    ]


def test_an_old_file_that_cannot_be_removed_is_said_and_costs_nothing(tmp_path: Path, directory: int) -> None:
    file = LineFile("metrics.jsonl", RotationSettings(1, max_backups=1))
    with failing(0, calls=("unlink",)):
        for n in range(6):
            file.write(line(n), directory)

    assert file.trouble == "old files cannot be removed: No space left on device"
    assert written(tmp_path) == list(range(6))


def test_an_export_that_is_larger_than_a_file_is_divided_by_lines(tmp_path: Path) -> None:
    exporter = FileExporter(FileSettings(str(tmp_path), rotation=RotationSettings(max_megabytes=1)))
    exporter.export_metrics(store_of(12_000), 2_000)
    exporter.shutdown(1)

    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) > 1
    assert max(sizes) <= MB
    points = sum(line.count("asInt") for path in tmp_path.iterdir() for line in path.read_text().splitlines())
    assert points == exporter.stats().sent_points == 12_000


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_every_point_is_counted_once_when_only_some_files_can_be_written(tmp_path: Path, temporality) -> None:
    exporter = FileExporter(FileSettings(str(tmp_path), temporality, rotation=RotationSettings(max_megabytes=1)))
    store = store_of(12_000)
    with failing(1, calls=("write",)):
        exporter.export_metrics(store, 2_000)

    stats = exporter.stats()
    assert stats.sent_points > 0
    assert stats.failed_points > 0
    assert stats.sent_points + stats.failed_points == 12_000


def test_whatever_fails_every_line_is_whole_and_none_that_was_written_is_lost(tmp_path: Path) -> None:
    """On a full disk each system call may fail, once, at every place."""
    number = failures = 0
    while True:
        place = tmp_path / str(number)
        place.mkdir()
        at = open_directory(place)
        clock = Clock()
        file = LineFile("metrics.jsonl", RotationSettings(1, max_backups=0), clock=clock)
        expected = []
        with failing(number) as calls:
            for n in range(6):
                clock.now_s += 1
                try:
                    file.write(line(n), at)
                except OSError:
                    failures += 1
                else:
                    expected.append(n)
        file.close()
        os.close(at)
        assert written(place) == expected, calls[number]
        if number >= len(calls):
            break
        number += 1

    assert failures >= 20
    assert number >= 30


@pytest.mark.parametrize(("limit", "kept"), [(n * 400_000 + rest, n) for n in range(3) for rest in (0, 1, 399_999)])
def test_a_full_disk_leaves_whole_lines(tmp_path: Path, directory: int, limit: int, kept: int) -> None:
    file = LineFile("metrics.jsonl")
    refused = 0
    with disk_full_at(limit):
        for n in range(4):
            try:
                file.write(line(n), directory)
            except OSError:
                refused += 1

    assert written(tmp_path) == list(range(kept))
    assert refused == 4 - kept


def test_what_could_not_be_taken_back_is_removed_by_the_next_write(tmp_path: Path, directory: int) -> None:
    file = LineFile("metrics.jsonl")
    file.write(line(0), directory)
    with disk_full_at(500_000), failing(0, calls=("ftruncate",)), pytest.raises(OSError, match="No space"):
        file.write(line(1), directory)
    torn = (tmp_path / "metrics.jsonl").stat().st_size

    file.write(line(2), directory)

    assert torn == 500_000
    assert written(tmp_path) == [0, 2]
