from __future__ import annotations

import io
import os
import pty
import threading

import pytest

from otel_gpu.exporters.console.exporter import ConsoleExporter
from otel_gpu.exporters.console.quantities import quantity
from otel_gpu.exporters.console.settings import ConsoleSettings
from otel_gpu.signals import cuda, self_metrics
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes
from tests.stopwatch import Stopwatch

CALLS = MetricSpec("gpu.cuda.kernel.launch.calls", "{call}", Instrument.COUNTER, "Calls.")
COPIES = MetricSpec("gpu.cuda.memory.copies", "By", Instrument.HISTOGRAM, "Copies.")
USAGE = MetricSpec("gpu.cuda.memory.usage", "By", Instrument.UPDOWNCOUNTER, "In use.")
PROCESS = Resource(attributes({"service.name": "train", "process.pid": 7}))
SECOND = 1_000_000_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def store_of(*measurements: Measurement) -> SeriesStore:
    store = SeriesStore()
    store.fold(measurements, 1)
    return store


def test_plain_table_shows_process_totals_and_rates() -> None:
    out = io.StringIO()
    exporter = ConsoleExporter(ConsoleSettings(), stream=out)
    store = store_of(
        Measurement(PROCESS, CALLS, attributes({"cuda.kernel.name": "gemm"}), 1000),
        Measurement(PROCESS, COPIES, (), Buckets({9: 2}, 2048)),
        Measurement(PROCESS, USAGE, (), 3 << 30),
    )
    exporter.export_metrics(store, 10 * SECOND)
    out.truncate(out.seek(0))

    store.fold([Measurement(PROCESS, CALLS, attributes({"cuda.kernel.name": "gemm"}), 500)], 1)
    exporter.export_metrics(store, 12 * SECOND)

    title, heading, calls, copies, usage = out.getvalue().splitlines()[:5]
    assert title.endswith("train (pid 7)")
    assert heading.split() == ["metric", "attributes", "total", "per", "second", "count", "mean", "p50", "p99"]
    assert calls.split() == ["gpu.cuda.kernel.launch.calls", "cuda.kernel.name=gemm", "1,500", "250/s"]
    assert copies.split() == [
        "gpu.cuda.memory.copies",
        "2.0",
        "KiB",
        "0",
        "B/s",
        "2",
        "1.0",
        "KiB",
        "724",
        "B",
        "1017",
        "B",
    ]
    assert usage.split() == ["gpu.cuda.memory.usage", "3.0", "GiB"]
    assert exporter.stats().sent_points == 6


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_names_from_targets_reach_no_terminal_unfiltered(stream: type[io.StringIO]) -> None:
    out = stream()
    name = "e\x1b]0;\x07[red]\nname"

    ConsoleExporter(ConsoleSettings(), stream=out).export_metrics(
        store_of(Measurement(PROCESS, CALLS, attributes(k=name), 1)), SECOND
    )

    assert "\x1b]0" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert "[red]" in out.getvalue()


def test_largest_series_come_first_and_the_rest_is_counted() -> None:
    out = io.StringIO()
    store = store_of(*(Measurement(PROCESS, CALLS, attributes(k=f"k{i}"), i) for i in range(50)))

    ConsoleExporter(ConsoleSettings(rows_per_metric=2), stream=out).export_metrics(store, SECOND)

    rows = out.getvalue().splitlines()[2:]
    assert [row.split()[1:] for row in rows[:2]] == [["k=k49", "49"], ["k=k48", "48"]]
    assert rows[2].strip() == "… 48 more"


def test_resource_without_a_service_is_named_by_its_attributes() -> None:
    out = io.StringIO()

    ConsoleExporter(ConsoleSettings(), stream=out).export_metrics(
        store_of(Measurement(Resource(attributes({"hw.id": "GPU-1"})), CALLS, (), 1)), SECOND
    )

    assert "hw.id=GPU-1" in out.getvalue()


def test_nothing_to_show_is_said() -> None:
    out = io.StringIO()

    ConsoleExporter(ConsoleSettings(), stream=out).export_metrics(SeriesStore(), SECOND)

    assert out.getvalue().endswith("nothing observed yet\n")


def test_closed_stream_is_counted() -> None:
    out = io.StringIO()
    out.close()
    exporter = ConsoleExporter(ConsoleSettings(), stream=out)

    exporter.export_metrics(store_of(Measurement(PROCESS, CALLS, (), 1)), SECOND)

    assert (exporter.stats().failed_points, exporter.stats().sent_points) == (1, 0)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "By", "0 B"),
        (1023, "By", "1023 B"),
        (1536, "By", "1.5 KiB"),
        (2**70, "By", "1048576.0 PiB"),
        (0, "s", "0 s"),
        (0.00025, "s", "250 µs"),
        (1234.5, "s", "1,234 s"),
        (1234567, "{call}", "1,234,567"),
        (0.123456, "1", "0.1235"),
        (98765.4, "{call}", "98,765"),
        (250.0, "W", "250 W"),
    ],
)
def test_quantities_are_scaled_to_be_read(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def large_store(rows: int = 3_000) -> SeriesStore:
    return store_of(*(Measurement(PROCESS, CALLS, attributes(k=f"{i:050}"), i) for i in range(rows)))


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_an_output_that_nobody_reads_holds_nobody_up(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_gpu.exporters.console.exporter._DEADLINE_S", 0.1)
    reader, writer = os.pipe() if kind == "pipe" else pty.openpty()
    with open(writer, "w") as stream:
        exporter = ConsoleExporter(ConsoleSettings(rows_per_metric=0), stream=stream)
        store = large_store(1_000 if kind == "pipe" else 200)
        watch = Stopwatch()

        exporter.export_metrics(store, SECOND)

        assert watch.seconds() < 10
        assert (exporter.stats().sent_points, exporter.stats().failed_points) == (0, len(store))
        assert exporter.stats().last_error == "nobody reads it"
    os.close(reader)


def test_what_is_read_slowly_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_gpu.exporters.console.exporter._DEADLINE_S", 60)
    reader, writer = os.pipe()
    parts: list[bytes] = []

    def read() -> None:
        while part := os.read(reader, 3_000):
            parts.append(part)

    thread = threading.Thread(target=read)
    thread.start()
    with open(writer, "w") as stream:
        exporter = ConsoleExporter(ConsoleSettings(rows_per_metric=0), stream=stream)
        exporter.export_metrics(large_store(), SECOND)
    thread.join()
    os.close(reader)

    assert exporter.stats().sent_points == 3_000
    assert len(b"".join(parts).splitlines()) == 3_000 + 3


def test_a_reader_that_has_left_is_a_failure() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = open(writer, "w")  # noqa: SIM115 - closing it may fail as well
    exporter = ConsoleExporter(ConsoleSettings(), stream=stream)

    exporter.export_metrics(large_store(), SECOND)
    stream.close()
    exporter.export_metrics(large_store(), 2 * SECOND)

    assert exporter.stats().failed_points == 6_000


def test_means_and_percentiles_are_those_of_the_interval() -> None:
    out = io.StringIO()
    exporter = ConsoleExporter(ConsoleSettings(), stream=out)
    store = store_of(Measurement(PROCESS, COPIES, (), Buckets({0: 1_000}, 2_000)))
    exporter.export_metrics(store, 10 * SECOND)
    out.truncate(out.seek(0))

    store.fold([Measurement(PROCESS, COPIES, (), Buckets({29: 4}, 4 << 30))], 1)
    exporter.export_metrics(store, 12 * SECOND)

    row = out.getvalue().splitlines()[2].split()
    assert row[-7:] == ["1,004", "1.0", "GiB", "724.1", "MiB", "1016.9", "MiB"]


def test_zeros_of_the_agent_are_left_out_but_for_its_health() -> None:
    out = io.StringIO()
    agent = Resource(attributes({"service.name": "otel-gpu"}))
    zeros = (self_metrics.EVENTS_LOST, self_metrics.MAP_ENTRIES, self_metrics.COMPONENT_HEALTH)
    lost = Measurement(agent, self_metrics.EVENTS_LOST, attributes(k="full"), 3)

    ConsoleExporter(ConsoleSettings(), stream=out).export_metrics(
        store_of(*(Measurement(agent, metric, (), 0) for metric in zeros), lost, Measurement(PROCESS, USAGE, (), 0)),
        SECOND,
    )

    shown = [line.split()[0] for line in out.getvalue().splitlines() if line.startswith("  ")]
    assert [s for s in shown if s != "metric"] == ["otel_gpu.component.health", "otel_gpu.events.lost", USAGE.name]


def test_graphs_that_nobody_saw_being_made_are_a_share() -> None:
    out = io.StringIO()
    counted = [
        Measurement(PROCESS, cuda.GRAPH_LAUNCH_CALLS, (), 40),
        Measurement(PROCESS, self_metrics.GRAPH_UNEXPANDED_LAUNCHES, attributes({"otel_gpu.reason": "older"}), 10),
    ]

    ConsoleExporter(ConsoleSettings(), stream=out).export_metrics(store_of(*counted), SECOND)

    assert "otel_gpu.reason=older 25.0% of graph launches" in out.getvalue()
