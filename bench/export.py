"""What does an export of 10,000 series cost? Ours against the SDK and against messages built anew, side by side.

Run: python -m bench.export [--series N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from otel_gpu.exporters.wire.metrics_json import JsonMetricsEncoder
from otel_gpu.exporters.wire.metrics_protobuf import MetricsEncoder
from otel_gpu.exporters.wire.request_json import request_type, to_json
from otel_gpu.signals.metrics import (
    Attributes,
    Buckets,
    Instrument,
    Measurement,
    MetricSpec,
    Resource,
    SeriesStore,
    attributes,
)

if TYPE_CHECKING:
    from bench.results import Result

LAUNCHES = MetricSpec("gpu.cuda.kernel.launch.calls", "{call}", Instrument.COUNTER, "Kernel launches.")
COPIES = MetricSpec("gpu.cuda.memory.copies", "By", Instrument.HISTOGRAM, "Bytes copied.")
MUST_MS, AIM_MS = 20.0, 8.0
SDK = "opentelemetry-sdk: observable counter"


@dataclass(frozen=True)
class Row:
    what: str
    cpu_ms: float | None
    """Of the best round; None when it could not be measured."""
    size_bytes: int | None
    note: str = ""


def attribute_sets(n: int) -> list[Attributes]:
    return [
        attributes(
            {
                "cuda.kernel.name": f"void at::native::elementwise_kernel<{i}>",
                "cuda.device.index": i % 8,
                "cuda.device.uuid": f"GPU-{i % 8:08x}-1111-2222-3333-444444444444",
                "cuda.stream": f"stream{i % 32}",
            }
        )
        for i in range(n)
    ]


def resource() -> Resource:
    return Resource(attributes({"service.name": "train", "process.pid": 4711, "host.name": "node-1"}))


def best_ms(rounds: int, run: Callable[[], bytes]) -> tuple[float, int]:
    """CPU time of the fastest round, and how many bytes it made."""
    best, size = float("inf"), 0
    for _ in range(rounds):
        began = time.process_time()
        size = len(run())
        best = min(best, time.process_time() - began)
    return best * 1e3, size


def store_of(spec: MetricSpec, sets: list[Attributes]) -> SeriesStore:
    store = SeriesStore()
    buckets = Buckets({i: i + 1 for i in range(21)}, 10**6)
    value = buckets if spec.instrument is Instrument.HISTOGRAM else 1
    store.fold([Measurement(resource(), spec, one, value) for one in sets], time.time_ns())
    return store


def touch(store: SeriesStore) -> None:
    """Let every value change, as it does between two exports of a busy process."""
    for owner in store:
        for series in owner.series.values():
            if isinstance(series.value, Buckets):
                series.value.add(Buckets({3: 1}, 12))
            else:
                series.value += 1


def ours(
    spec: MetricSpec, sets: list[Attributes], rounds: int, encoder: MetricsEncoder | JsonMetricsEncoder
) -> tuple[float, int]:
    store = store_of(spec, sets)
    best, size = float("inf"), 0
    for _ in range(rounds + 1):
        touch(store)
        began = time.process_time()
        payloads = encoder.encode(store, time.time_ns())
        encoder.commit()
        took = time.process_time() - began
        if size:  # the first round builds
            best = min(best, took)
        size = sum(p.size_bytes for p in payloads)
    return best * 1e3, size


def built_anew(spec: MetricSpec, sets: list[Attributes], rounds: int) -> tuple[float, int]:
    store = store_of(spec, sets)
    return best_ms(rounds, lambda: b"".join(p.body for p in MetricsEncoder().encode(store, time.time_ns())))


def sdk(sets: list[Attributes], rounds: int) -> tuple[float, int]:
    """An observable counter collected and encoded by opentelemetry-sdk and its OTLP exporter."""
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
    from opentelemetry.sdk.metrics.export import CardinalityLimits, InMemoryMetricReader

    kept = [dict(one) for one in sets]
    reader = InMemoryMetricReader(cardinality_limits=CardinalityLimits({ObservableCounter: 2 * len(sets)}))

    def observe(_options: CallbackOptions) -> Iterator[Observation]:
        for i, one in enumerate(kept):
            yield Observation(i, one)

    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("bench")
    meter.create_observable_counter(LAUNCHES.name, [observe], unit=LAUNCHES.unit)

    def run() -> bytes:
        data = reader.get_metrics_data()
        assert data is not None
        return encode_metrics(data).SerializeToString()

    return best_ms(rounds, run)


def measure(rounds: int) -> Iterator[Result]:
    """Yield the rows of the common table: ours against the limits, beside the SDK."""
    from bench.results import Result

    ours_row, *others = compare(10_000, rounds)
    reference = next((f"{row.cpu_ms:.0f} ms by {row.what}" for row in others if row.what == SDK and row.cpu_ms), "")
    cpu_ms = ours_row.cpu_ms
    yield Result(
        "export of 10,000 series, CPU",
        f"{cpu_ms:.1f} ms" if cpu_ms else "",
        reference,
        cpu_ms,
        unit="ms",
        must=MUST_MS,
        aim=AIM_MS,
    )


def compare(n: int, rounds: int) -> list[Row]:
    """Measure every way; a row without a time says why in its note."""
    sets = attribute_sets(n)
    rows = [
        Row(
            "ours: counters, messages kept",
            *ours(LAUNCHES, sets, rounds, MetricsEncoder()),
            note=f"must {MUST_MS:g}, aim {AIM_MS:g}",
        ),
        Row("ours: counters, delta", *ours(LAUNCHES, sets, rounds, MetricsEncoder("delta"))),
        Row("ours: histograms of 21 buckets, all changed", *ours(COPIES, sets, rounds, MetricsEncoder())),
        Row("counters, messages built anew", *built_anew(LAUNCHES, sets, min(rounds, 5))),
    ]
    try:
        rows.append(Row(SDK, *sdk(sets, min(rounds, 5))))
    except ImportError as error:
        rows.append(Row(SDK, None, None, f"not installed: {error.name}"))
    body = b"".join(p.body for p in MetricsEncoder().encode(store_of(LAUNCHES, sets), time.time_ns()))
    rows.append(Row("+ gzip level 1 of ours, in the sender's thread", *best_ms(rounds, lambda: gzip.compress(body, 1))))
    rows.append(
        Row("ours: counters as OTLP/JSON lines, text kept", *ours(LAUNCHES, sets, rounds, JsonMetricsEncoder()))
    )
    message = request_type("metrics").FromString(body)
    rows.append(Row("protobuf's own JSON", *best_ms(min(rounds, 3), lambda: to_json(message).encode())))
    return rows


def print_table(rows: list[Row], n: int) -> None:
    print(f"export of {n:,} series with 4 attributes, CPU of the best round\n")
    print(f"{'what':48} {'CPU ms':>8} {'MB':>6}  note")
    for row in rows:
        took = "-" if row.cpu_ms is None else f"{row.cpu_ms:.1f}"
        size = "-" if row.size_bytes is None else f"{row.size_bytes / 1e6:.2f}"
        print(f"{row.what:48} {took:>8} {size:>6}  {row.note}".rstrip())


def main(argv: list[str] | None = None) -> int:
    """Return 1 when ours takes longer than it must."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = compare(options.series, options.rounds)
    if options.json:
        print(json.dumps({"bench": "export", "series": options.series, "rows": [asdict(row) for row in rows]}))
    else:
        print_table(rows, options.series)
    first = rows[0].cpu_ms
    return int(first is None or first > MUST_MS * options.series / 10_000)


if __name__ == "__main__":
    sys.exit(main())
