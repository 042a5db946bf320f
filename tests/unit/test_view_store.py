from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest

from otel_gpu.exporters.recordings.reading import from_otlp
from otel_gpu.exporters.wire.profiles_protobuf import encode_profiles
from otel_gpu.signals.metrics import Resource, attributes
from otel_gpu.signals.profiles import GPU_LAUNCHES, Frame, FrameKind, ProfileBuilder
from otel_gpu.view import metric_tables, traces_panel
from otel_gpu.view.gpu_panel import Query, gpu_panel
from otel_gpu.view.histograms import Distribution, explicit, exponential
from otel_gpu.view.intake import Intake
from otel_gpu.view.losses import Reason
from otel_gpu.view.settings import Bounds, ViewSettings
from otel_gpu.view.store import Store
from tests.unit.view_requests import DELTA, NS, Metrics, Spans

_START = 1_700_000_000 * NS
_LAUNCHES = "gpu.cuda.kernel.launch.calls"


class _Clock:
    def __init__(self) -> None:
        self.now = _START

    def __call__(self) -> int:
        return self.now


class _View:
    def __init__(self, **bounds: int) -> None:
        self.clock = _Clock()
        settings = ViewSettings(bounds=replace(Bounds(), **bounds))
        self.store = Store(settings, self.clock)
        self.intake = Intake(self.store, settings.bounds)

    def at(self, seconds: float) -> int:
        self.clock.now = _START + int(seconds * NS)
        return self.clock.now

    def metrics(self, metrics: Metrics) -> object:
        return self.intake.take("metrics", metrics.request.SerializeToString())

    def panel(self, seconds: float = 60, process: int | None = None) -> dict:
        resources = None if process is None else frozenset({process})
        now = self.store.sweep()
        panel = gpu_panel(self.store.series, Query(resources, seconds, now))
        return json.loads(json.dumps(panel, default=lambda a: [None if math.isnan(x) else float(x) for x in a]))

    def lost(self) -> dict[Reason, int]:
        return {loss.reason: loss.count for loss in self.store.losses.all()}


@pytest.fixture
def view() -> _View:
    return _View()


def _launches(value: int, start: int, end: int, kernel: str = "gemm", temporality: int = 2, pid: int = 7) -> Metrics:
    return Metrics(pid=pid).counter(_LAUNCHES, value, start, end, temporality, cuda__kernel__name=kernel)


def test_a_counter_adds_up_and_has_its_rate(view: _View) -> None:
    for second in range(1, 31):
        view.metrics(_launches(40 * second, _START, view.at(second)))

    launches = view.panel(20)["launches"]

    assert launches["total"] == launches["rows"][0]["total"] == 1200
    assert launches["rate"] == pytest.approx(40)
    assert launches["lines"][0]["values"] == pytest.approx([40] * 20)


def test_what_is_sent_as_a_level_has_no_rate_even_by_the_name_of_a_counter(view: _View) -> None:
    view.metrics(Metrics(pid=8).level(_LAUNCHES, 10**6, view.at(1), cuda__kernel__name="gemm"))
    assert view.panel(20)["launches"]["rate"] == 0

    view.metrics(_launches(40, _START, view.at(1)))
    (line,) = view.panel(20)["launches"]["lines"]
    assert sum(line["values"]) == pytest.approx(40)


def test_a_rate_is_right_whatever_the_interval(view: _View) -> None:
    for second in range(10, 121, 10):
        view.metrics(_launches(7 * second, _START, view.at(second)))

    assert view.panel(100)["launches"]["lines"][0]["values"] == pytest.approx([7] * 100)


def test_a_rate_is_right_wherever_intervals_begin(view: _View) -> None:
    seconds = [0.9, 2.1, 3.05, 4.9, 5.15, 6.2, 7.95, 8.01, 10.4]
    for second in seconds:
        view.metrics(_launches(int(1000 * second), _START, view.at(second)))

    assert view.panel(9)["launches"]["lines"][0]["values"] == pytest.approx([1000] * 9)


def test_deltas_are_as_cumulative_values(view: _View) -> None:
    for second in range(1, 11):
        now = view.at(second)
        view.metrics(_launches(5, now - NS, now, temporality=DELTA))

    launches = view.panel(8)["launches"]
    assert launches["total"] == 50
    assert launches["rate"] == pytest.approx(5)


@pytest.mark.parametrize("new_start", [0, 6])
def test_a_restart_is_no_fall(view: _View, new_start: int) -> None:
    view.metrics(_launches(100, _START, view.at(5)))
    view.metrics(_launches(30, _START + new_start * NS, view.at(10)))
    view.metrics(_launches(60, _START + new_start * NS, view.at(15)))

    launches = view.panel(15)["launches"]
    assert launches["total"] == 160
    assert min(launches["lines"][0]["values"]) >= 0
    assert sum(launches["lines"][0]["values"]) == pytest.approx(160)


@pytest.mark.parametrize("ahead", [20, 3600])
def test_a_clock_that_is_ahead_changes_neither_totals_nor_rates(view: _View, ahead: int) -> None:
    for second in range(1, 21):
        view.metrics(_launches(10 * second, _START + ahead * NS, view.at(second) + ahead * NS))

    launches = view.panel(15)["launches"]
    assert launches["total"] == 200
    assert launches["rate"] == pytest.approx(10)


def test_a_clock_that_is_put_right_is_believed(view: _View) -> None:
    view.metrics(_launches(10, _START, view.at(1) + 3600 * NS))
    view.metrics(_launches(20, _START, view.at(2)))

    assert view.panel(15)["launches"]["total"] == 20


def test_what_was_counted_before_anybody_looked_has_no_rate(view: _View) -> None:
    view.metrics(_launches(1_000_000, _START - 7200 * NS, view.at(1)))
    view.metrics(_launches(1_000_010, _START - 7200 * NS, view.at(11)))

    launches = view.panel(10)["launches"]
    assert launches["total"] == 1_000_010
    assert sum(launches["lines"][0]["values"]) == pytest.approx(10)


def test_what_is_said_twice_counts_once(view: _View) -> None:
    end = view.at(3)
    for _ in range(3):
        view.metrics(_launches(9, end - NS, end, temporality=DELTA))

    assert view.panel()["launches"]["total"] == 9
    assert view.lost() == {Reason.REPEATED: 2}


def test_a_level_is_believed_until_nothing_is_said_of_it(view: _View) -> None:
    usage = "gpu.cuda.memory.usage"
    for second in range(1, 4):
        view.metrics(Metrics().level(usage, 1 << 30, view.at(second), gauge=False, cuda__memory__type="device"))
    memory = view.panel(3)["memory"]
    assert (memory["bytes"], memory["rows"][0]["peak"]) == (1 << 30, 1 << 30)

    view.at(60)

    memory = view.panel()["memory"]
    assert memory["bytes"] == 0
    assert memory["rows"][0]["peak"] == 1 << 30


def test_copies_have_their_exact_bytes(view: _View) -> None:
    size = (1 << 53) - 1
    copies = Metrics().exponential("gpu.cuda.memory.copies", {20: 3}, size, _START, view.at(2),
                                   cuda__memcpy__kind="MemcpyHostToDevice", cuda__memory__host__type="pinned")  # fmt: skip
    view.metrics(copies)

    (row,) = view.panel()["copies"]["rows"]
    assert (row["kind"], row["host"], row["total"], row["bytes"]) == ("MemcpyHostToDevice", "pinned", 3, size)


def test_waits_have_quantiles_of_both_kinds_of_histograms(view: _View) -> None:
    name, end = "gpu.cuda.synchronize.duration", view.at(2)
    view.metrics(Metrics().exponential(name, {-10: 99, -1: 1}, 0.5, _START, end, cuda__function="cuStreamSynchronize"))
    view.metrics(Metrics().explicit(name, [0.001, 1.0], [1, 0, 3], 9, _START, end, cuda__function="cuCtxSynchronize"))

    waits = {row["function"]: row for row in view.panel()["waits"]["rows"]}
    assert waits["cuStreamSynchronize"]["p50"] == 2**-9
    assert waits["cuStreamSynchronize"]["p99"] == 2**-9
    assert waits["cuStreamSynchronize"]["mean"] == 0.005
    assert waits["cuCtxSynchronize"]["p50"] == math.inf


def test_histograms_of_different_scales_add_up(view: _View) -> None:
    name = "gpu.cuda.kernel.grid.size"
    view.metrics(_launches(4, _START, view.at(1)))
    for pid, scale, bucket in ((7, 0, 3), (8, 2, 15)):  # both (8, 16]
        view.metrics(
            Metrics(pid=pid).exponential(
                name, {bucket: 2}, 30, _START, view.at(2), scale=scale, cuda__kernel__name="gemm"
            )
        )

    (row,) = view.panel()["launches"]["rows"]
    assert row["blocks"] == {"mean": 15, "buckets": [[16, 4]]}


def test_one_process_can_be_chosen(view: _View) -> None:
    view.metrics(_launches(3, _START, view.at(1), pid=7))
    view.metrics(_launches(5, _START, view.at(1), pid=8))
    numbers = {entry.name: entry.number for entry in view.store.resources}

    assert view.panel()["launches"]["total"] == 8
    assert view.panel(process=numbers["server (8)"])["launches"]["total"] == 5


def test_series_beyond_the_room_are_counted_and_told() -> None:
    view = _View(series=2)
    response = None
    for kernel in "abc":
        response = view.metrics(_launches(1, _START, view.at(1), kernel))

    assert response.partial_success.rejected_data_points == 1
    assert view.lost() == {Reason.SERIES: 1}


def test_what_is_too_old_is_forgotten(view: _View) -> None:
    view.metrics(_launches(1, _START, view.at(1)))
    view.at(3700)
    view.store.sweep()

    assert len(view.store.series) == 0
    view.metrics(_launches(1, _START, _START + NS))
    assert view.lost() == {Reason.OLD: 1}
    view.metrics(_launches(1, _START + 3690 * NS, view.at(3701)))
    assert view.panel()["launches"]["total"] == 1


def test_names_are_cut_and_made_printable(view: _View) -> None:
    view.metrics(_launches(1, _START, view.at(1), "k" * 5000))
    view.metrics(_launches(1, _START, view.at(1), "a\x1b[31m\u202eb"))

    names = sorted(len(row["name"]) for row in view.panel()["launches"]["rows"])
    assert names == [8, 1000]
    assert all(row["name"].isprintable() for row in view.panel()["launches"]["rows"])
    assert view.lost()[Reason.CUT] >= 1


def _trace(view: _View, number: int) -> dict:
    found = traces_panel.trace(view.store.spans, view.store.resources, f"{number:032x}")
    assert found is not None
    return found


def test_a_trace_is_a_tree_with_what_links_to_it(view: _View) -> None:
    start = view.at(5)
    request = Spans().add(1, 1, "POST /generate", start, 50, gpu__cuda__kernel__launch__calls=12)
    request.add(1, 3, "gpu wait", start + 20, 10, parent=2).add(1, 2, "gpu batch", start + 10, 30, parent=1)
    step = Spans("engine", 9).add(2, 9, "gpu step", start + 5, 20, links=((1, 1),))
    for spans in (request, step):
        view.intake.take("traces", spans.request.SerializeToString())

    trace = _trace(view, 1)

    assert [(s["name"], s["depth"], s["linked"]) for s in trace["spans"]] == [
        ("POST /generate", 0, False), ("gpu batch", 1, False), ("gpu wait", 2, False), ("gpu step", 1, True),
    ]  # fmt: skip
    assert [s["process"] for s in trace["spans"]] == ["server (7)"] * 3 + ["engine (9)"]
    listed = traces_panel.requests(view.store.spans, view.store.resources, None, "generate", "start", 0)
    assert (listed["count"], listed["rows"][0]["totals"][0]) == (1, 12)


def test_spans_that_are_each_others_parents_are_all_shown(view: _View) -> None:
    start = view.at(1)
    view.intake.take(
        "traces",
        Spans().add(1, 1, "a", start, 1, parent=2).add(1, 2, "b", start, 1, parent=1).request.SerializeToString(),
    )

    assert sorted(s["name"] for s in _trace(view, 1)["spans"]) == ["a", "b"]


def test_older_spans_make_room_and_are_counted() -> None:
    view = _View(spans=100)
    for number in range(1, 151):
        view.intake.take("traces", Spans().add(number, 1, "request", view.at(number), 1).request.SerializeToString())

    assert len(view.store.spans) <= 100
    assert view.lost()[Reason.SPANS] == 150 - len(view.store.spans)
    assert _trace(view, 150)


def _profile(start: int, function: str, value: int) -> bytes:
    builder = ProfileBuilder(GPU_LAUNCHES, Resource(attributes({"service.name": "server", "process.pid": 7})), start)
    builder.add((Frame(FrameKind.CUDA, "gemm"), Frame(FrameKind.CPYTHON, function, "/app/train.py", 5)), value)
    return encode_profiles([builder.build(start + 10 * NS)]).SerializeToString()


def test_profiles_of_a_window_add_up(view: _View) -> None:
    for i in range(4):
        view.at(10 * i + 10)
        view.intake.take("profiles", _profile(_START + 10 * i * NS, "step" if i < 2 else "other", 5))
    (entry,) = view.store.resources

    found = view.store.profiles.between("gpu_launches", entry.number, entry.resource, _START, _START + 20 * NS)

    assert found is not None
    assert [(s.stack[1].function, s.stack[0].kind, s.value) for s in found.samples] == [("step", FrameKind.CUDA, 10)]


def test_stacks_without_room_are_counted_but_keep_their_value() -> None:
    view = _View(stacks=2)
    view.at(10)
    for i in range(3):
        view.intake.take("profiles", _profile(_START, f"f{i}", 5))
    (entry,) = view.store.resources

    found = view.store.profiles.between("gpu_launches", entry.number, entry.resource, 0, 2 * _START)

    assert found is not None
    assert found.total == 15
    assert view.lost() == {Reason.STACKS: 2}


def test_sums_end_where_all_have_spoken(view: _View) -> None:
    for second in range(1, 21):
        view.metrics(_launches(10 * second, _START, view.at(second), pid=7))
        if second <= 15:
            view.metrics(_launches(10 * second, _START, view.at(second), pid=8))

    values = view.panel(10)["launches"]["lines"][0]["values"]
    assert values == pytest.approx([20] * 10)

    for second in range(21, 40):
        view.metrics(_launches(10 * second, _START, view.at(second), pid=7))

    assert view.panel(3)["launches"]["lines"][0]["values"] == pytest.approx([10] * 3)


def test_names_of_spans_count_for_the_room_that_they_take() -> None:
    view = _View(span_bytes=20_000)
    for number in range(1, 101):
        view.intake.take("traces", Spans().add(number, 1, "n" * 900, view.at(1), 1).request.SerializeToString())

    assert len(view.store.spans) < 25
    assert view.lost()[Reason.SPANS] == 100 - len(view.store.spans)


def test_a_sample_without_values_is_one_event_at_each_of_its_times(view: _View) -> None:
    request = ExportProfilesServiceRequest()
    request.dictionary.string_table.extend(["", "samples", "count"])
    request.dictionary.stack_table.add()
    profile = request.resource_profiles.add().scope_profiles.add().profiles.add(time_unix_nano=view.at(1))
    profile.sample_type.type_strindex, profile.sample_type.unit_strindex = 1, 2
    profile.samples.add(timestamps_unix_nano=[view.at(1)] * 10)

    (found,) = from_otlp(request)

    assert [sample.value for sample in found.samples] == [10]


def test_buckets_stay_bounded_whatever_is_added() -> None:
    waves, steps = Distribution(), Distribution()
    for i in range(40):
        waves.add(exponential(3, 0, 100_000 * i, [1] * 100))
        steps.add(explicit([1.0 + i + j / 100 for j in range(99)], [1] * 100))

    assert len(waves.counts) <= 1_000
    assert len(steps.counts) <= 1_000
    assert sum(waves.counts.values()) == sum(steps.counts.values()) == 4_000


@pytest.mark.parametrize("bounds", [[1.0, math.nan], [2.0, 1.0], [math.nan]])
def test_bounds_that_do_not_rise_are_no_histogram(bounds: list[float]) -> None:
    with pytest.raises(ValueError, match="rise"):
        explicit(bounds, [1] * (len(bounds) + 1))


def test_an_attribute_that_is_no_number_makes_one_series(view: _View) -> None:
    for second in (1, 2, 3):
        now = view.at(second)
        view.metrics(Metrics().counter(_LAUNCHES, second, _START, now, cuda__kernel__name=math.nan))

    assert len(view.store.series) == 1


def test_a_table_is_as_wide_as_a_page_can_show(view: _View) -> None:
    now = view.at(1)
    for series in range(20):
        view.metrics(Metrics().counter("nccl.calls", 1, _START, now, **{f"key{series}_{i}": "v" for i in range(50)}))

    query = Query(None, 60, view.store.sweep())
    (table,) = metric_tables.fabric(view.store.series, query)["nccl"]
    assert len(table["rows"]) == 20
    assert len(table["attributes"]) == 64
