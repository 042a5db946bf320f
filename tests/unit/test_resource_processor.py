"""Resources get what the configuration adds and lose what it takes away, and their series end with their processes."""

from __future__ import annotations

import pytest

from otel_gpu.errors import ConfigError
from otel_gpu.processors.kernel_names.processor import KernelNames
from otel_gpu.processors.resource.processor import ResourceAttributes
from otel_gpu.processors.resource.settings import AttributeAction
from otel_gpu.service.graph import Graph
from otel_gpu.signals.cuda import KERNEL_LAUNCH_CALLS
from otel_gpu.signals.metrics import Instrument, Measurement, MetricSpec, Resource, attributes
from otel_gpu.signals.profiles import GPU_LAUNCHES, Frame, FrameKind, ProfileBuilder
from otel_gpu.signals.spans import Span, SpanContext
from tests.unit.graphs import one_pipeline
from tests.unit.test_pipeline import Sink, Source

CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
ONE, TWO = (Resource(attributes({"process.pid": n, "service.name": "train", "team": f"t{n}"})) for n in (1, 2))
TOGETHER = Resource(attributes({"service.name": "train"}))
ADD_UP = ResourceAttributes([AttributeAction(key, "delete") for key in ("process.pid", "team")])


def changed(*actions: AttributeAction) -> dict[str, object]:
    return dict(ResourceAttributes(actions).resource(ONE).attributes)


@pytest.mark.parametrize(
    ("action", "becomes"),
    [
        (AttributeAction("new", "insert", 1.5), {"new": 1.5}),
        (AttributeAction("team", "insert", "x"), {}),
        (AttributeAction("new", "update", "x"), {}),
        (AttributeAction("team", "update", "x"), {"team": "x"}),
        (AttributeAction("new", "upsert", True), {"new": True}),
        (AttributeAction("team", "upsert", "x"), {"team": "x"}),
        (AttributeAction("service.namespace", "insert", from_attribute="team"), {"service.namespace": "t1"}),
        (AttributeAction("service.namespace", "upsert", from_attribute="none"), {}),
        (AttributeAction("none", "delete"), {}),
    ],
)
def test_an_action_does_what_it_does_in_the_collector(action: AttributeAction, becomes: dict[str, object]) -> None:
    assert changed(action) == {**dict(ONE.attributes), **becomes}


def test_actions_follow_one_another() -> None:
    moved = changed(AttributeAction("squad", "insert", from_attribute="team"), AttributeAction("team", "delete"))

    assert moved == {"process.pid": 1, "service.name": "train", "squad": "t1"}


@pytest.mark.parametrize(
    ("key", "action", "value", "source", "said"),
    [
        ("a", "delete", "x", None, "a is deleted, and gets no value"),
        ("a", "insert", None, None, "a needs one value"),
        ("a", "upsert", "x", "b", "a needs one value"),
        ("host.name", "upsert", None, "team", "host.name is observed, and team is what a process may say of itself"),
    ],
)
def test_what_cannot_be_meant_is_refused(key, action, value, source, said) -> None:
    with pytest.raises(ConfigError, match=said):
        AttributeAction(key, action, value, source)


def test_what_was_observed_may_be_shown_by_another_name() -> None:
    assert changed(AttributeAction("process.vpid", "insert", from_attribute="process.pid"))["process.vpid"] == 1


def test_spans_and_profiles_are_of_the_changed_resource() -> None:
    spans = [Span(of, "s", SpanContext(b"t" * 16, b"s" * 8), 1, 2) for of in (ONE, TWO)]
    builders = [ProfileBuilder(GPU_LAUNCHES, of, 1) for of in (ONE, TWO)]
    for builder in builders:
        builder.add((Frame(FrameKind.CUDA, "k"),), 3)

    assert [span.resource for span in ADD_UP.spans(spans)] == [TOGETHER, TOGETHER]
    [profile] = ADD_UP.profiles([builder.build(5) for builder in builders])
    assert (profile.resource, profile.total) == (TOGETHER, 6)


def measured(resource: Resource, calls: int, metric: MetricSpec = CALLS, **attrs: str) -> Measurement:
    return Measurement(resource, metric, attributes(attrs), calls)


def graph(processors, *batches: list[Measurement]) -> tuple[Graph, Sink]:
    sink = Sink()
    return one_pipeline({"source": Source(*batches)}, processors, [sink]), sink  # type: ignore[list-item]


def interval(graph: Graph, *ended: Resource) -> None:
    assert graph.collect(ended)
    graph.export()


def test_series_of_a_changed_resource_end_with_their_process() -> None:
    rename = ResourceAttributes([AttributeAction("team", "upsert", "all")])
    one, sink = graph([rename], [measured(ONE, 1)], [measured(ONE, 2)], [])
    shown = rename.resource(ONE)

    interval(one)
    interval(one, ONE)
    interval(one)

    assert sink.exports == [{(shown, "calls"): 1}, {(shown, "calls"): 3}, {}]


def test_series_of_processes_that_are_one_end_with_the_last_and_add_up() -> None:
    one, sink = graph([ADD_UP], [measured(ONE, 1), measured(TWO, 10)], [measured(TWO, 20)], [measured(TWO, 40)], [])

    interval(one)
    interval(one, ONE)
    interval(one, TWO)
    interval(one)

    assert sink.exports == [*({(TOGETHER, "calls"): n} for n in (11, 31, 71)), {}]


def test_what_an_ended_process_held_is_taken_off_what_several_hold_together() -> None:
    usage = MetricSpec("usage", "By", Instrument.UPDOWNCOUNTER, "In use.")
    first = [measured(ONE, 5, usage), measured(TWO, 7, usage), measured(ONE, -1, usage)]
    one, sink = graph([ADD_UP], first, [], [measured(TWO, 2, usage)], [])

    interval(one)
    interval(one, ONE)
    interval(one)
    interval(one, TWO)

    assert sink.exports == [{(TOGETHER, "usage"): n} for n in (11, 7, 9, 0)]


def test_who_comes_before_the_end_is_told_goes_on_in_the_same_series() -> None:
    one, sink = graph([ADD_UP], [measured(ONE, 1)], [measured(TWO, 10)], [measured(TWO, 20)])

    assert one.collect([ONE])
    interval(one)
    interval(one)

    assert sink.exports == [{(TOGETHER, "calls"): 11}, {(TOGETHER, "calls"): 31}]


def test_what_is_measured_late_of_an_ended_process_does_not_keep_its_series() -> None:
    one, sink = graph([ADD_UP], [measured(ONE, 1)], [measured(ONE, 2)], [])

    assert one.collect([ONE])
    interval(one)
    interval(one)

    assert sink.exports == [{(TOGETHER, "calls"): 3}, {}]


class Forgetful(KernelNames):
    """Keeps whom it was told to forget."""

    def __init__(self) -> None:
        super().__init__(1)
        self.forgotten: list[Resource] = []

    def forget(self, resource: Resource) -> None:
        super().forget(resource)
        self.forgotten.append(resource)


def test_processors_forget_whom_they_know() -> None:
    before, behind = Forgetful(), Forgetful()
    launched = [measured(of, 1, KERNEL_LAUNCH_CALLS, **{"cuda.kernel.name": "k"}) for of in (ONE, TWO)]
    one, _ = graph([before, ADD_UP, behind], launched, [], [])

    interval(one, ONE)
    assert (before.forgotten, behind.forgotten) == ([ONE], [])
    interval(one, TWO)
    assert (before.forgotten, behind.forgotten) == ([ONE, TWO], [TOGETHER])
