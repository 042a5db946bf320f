"""Are requests added up by what the conventions and the registry have, within bounds?"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from otel_gpu.receivers.inference.metrics import SPECS
from otel_gpu.receivers.inference.request import (
    Attribution,
    Callback,
    CallbackKind,
    Ending,
    GpuTotals,
    Request,
    RpcCall,
    Stream,
)
from otel_gpu.receivers.inference.serving_metrics import ServingMetrics, _bucket
from otel_gpu.receivers.inference.trace_context import parent_of
from otel_gpu.signals.exemplars import Exemplar
from otel_gpu.signals.metrics import OVERFLOW, Buckets, Measurement, Resource
from otel_gpu.signals.spans import SpanContext

HERE = Resource((("service.name", "server"),))
S = 1_000_000_000
CHAT = Request(
    HERE,
    10 * S,
    13 * S,
    "POST",
    "/v1/chat/completions",
    "/v1/chat/completions",
    "1.1",
    200,
    stream=Stream(5, 11 * S, 12 * S, is_event_stream=True),
    totals=GpuTotals(7, 0, 1, 1, 0, 4096, 64, 0, S // 2),
)


def collected(*requests: Request) -> list[Measurement]:
    metrics = ServingMetrics()
    for request in requests:
        metrics.add(request)
    return metrics.collect()


def by_name(measurements: list[Measurement], name: str) -> list[Measurement]:
    return [m for m in measurements if m.metric.name == name]


def one(measurements: list[Measurement], name: str) -> tuple[dict[str, object], Buckets]:
    (found,) = by_name(measurements, name)
    assert isinstance(found.value, Buckets)
    return dict(found.attributes), found.value


def test_how_long_requests_took() -> None:
    attrs, histogram = one(collected(CHAT, CHAT), "http.server.request.duration")

    assert attrs == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "network.protocol.version": "1.1",
        "url.scheme": "http",
        "url.template": "/v1/chat/completions",
    }
    assert histogram == Buckets({1: 2}, 6.0)


def test_how_long_a_model_took_to_its_first_token_and_for_each() -> None:
    found = collected(CHAT)
    asked = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai"}

    assert one(found, "gen_ai.server.request.duration") == (asked, Buckets({1: 1}, 3.0))
    assert one(found, "gen_ai.server.time_to_first_token") == (asked, Buckets({-1: 1}, 1.0))
    assert one(found, "gen_ai.server.time_per_output_token") == (asked, Buckets({-3: 1}, 0.25))


@pytest.mark.parametrize(
    "changes",
    [
        {"stream": None},
        {"stream": Stream(5, 11 * S, 12 * S)},
        {"status": 400},
        {"status": 500},
        {"ending": Ending.CONNECTION_CLOSED},
    ],
)
def test_tokens_are_those_of_streams_that_came_through(changes: dict[str, object]) -> None:
    found = collected(replace(CHAT, **changes))  # type: ignore[arg-type]

    assert not by_name(found, "gen_ai.server.time_to_first_token")
    assert not by_name(found, "gen_ai.server.time_per_output_token")
    assert by_name(found, "gen_ai.server.request.duration")


def test_one_chunk_has_no_time_for_each() -> None:
    found = collected(replace(CHAT, stream=Stream(1, 11 * S, 11 * S, is_event_stream=True)))

    assert by_name(found, "gen_ai.server.time_to_first_token")
    assert not by_name(found, "gen_ai.server.time_per_output_token")


def test_requests_to_no_model_are_none_to_a_model() -> None:
    assert not [m for m in collected(replace(CHAT, path="/x")) if m.metric.name.startswith("gen_ai.")]
    assert not [m for m in collected(replace(CHAT, method="GET")) if m.metric.name.startswith("gen_ai.")]


def test_what_the_gpu_did_for_a_route() -> None:
    found = collected(CHAT, replace(CHAT, totals=GpuTotals(0)))
    where = {
        "http.request.method": "POST",
        "otel_gpu.attribution": "exact",
        "url.template": "/v1/chat/completions",
    }

    assert one(found, "gpu.cuda.request.kernel.launch.calls") == (where, Buckets({2: 1}, 7, 1))
    assert one(found, "gpu.cuda.request.synchronize.duration") == (where, Buckets({-2: 1}, 0.5))
    assert {dict(m.attributes)["cuda.memcpy.kind"]: m.value for m in by_name(found, "gpu.cuda.request.memory.copy.bytes")} == {
        "MemcpyHostToDevice": Buckets({11: 1}, 4096),
        "MemcpyDeviceToHost": Buckets({5: 1}, 64),
    }  # fmt: skip
    assert not by_name(found, "gpu.cuda.request.graph.launch.calls")


def test_what_is_not_known_is_not_measured() -> None:
    assert not [m for m in collected(replace(CHAT, totals=GpuTotals())) if m.metric.name.startswith("gpu.")]


def test_shares_are_kept_apart() -> None:
    found = collected(CHAT, replace(CHAT, attribution=Attribution.SHARE))

    assert len(by_name(found, "gpu.cuda.request.kernel.launch.calls")) == 2


def test_what_the_caller_does_not_record_is_counted_all_the_same() -> None:
    parent = parent_of([f"00-{'1' * 32}-{'2' * 16}-00"])

    assert by_name(collected(replace(CHAT, parent=parent)), "http.server.request.duration")


@pytest.mark.parametrize("ending", [Ending.AGENT_ENDED, Ending.BEGAN_BEFORE, Ending.PROTOCOL_LOST])
def test_a_request_that_was_cut_is_counted_and_measured_by_nothing(ending: Ending) -> None:
    (found,) = collected(replace(CHAT, ending=ending))

    assert (found.metric.name, found.value) == ("otel_gpu.requests.cut", 1)
    assert dict(found.attributes) == {"otel_gpu.reason": ending.value}


def test_failures_are_told_from_the_rest() -> None:
    found = collected(CHAT, replace(CHAT, status=500), replace(CHAT, status=None, ending=Ending.CONNECTION_CLOSED))

    errors = {dict(m.attributes).get("error.type") for m in by_name(found, "http.server.request.duration")}
    assert errors == {None, "500", "connection_closed"}


def test_calls_are_measured_as_calls() -> None:
    call = replace(CHAT, rpc=RpcCall("pkg.Greeter/Hello", 13), route="pkg.Greeter/Hello")
    found = collected(call, replace(call, rpc=RpcCall("no.Such/Thing", 12)), replace(call, route="other"))
    names = {m.metric.name for m in found}

    assert "http.server.request.duration" not in names
    assert {dict(m.attributes)["rpc.method"] for m in by_name(found, "rpc.server.call.duration")} == {
        "pkg.Greeter/Hello",
        "_OTHER",
        "other",
    }
    launches = by_name(found, "gpu.cuda.request.kernel.launch.calls")
    assert {k for m in launches for k, _ in m.attributes} == {"otel_gpu.attribution", "rpc.method"}


def test_series_are_bounded_and_nothing_is_lost() -> None:
    metrics = ServingMetrics(max_series=10)
    for status in range(100, 600):
        metrics.add(replace(CHAT, status=status, path="/x", totals=GpuTotals()))
    found = by_name(metrics.collect(), "http.server.request.duration")

    assert len(found) == 11
    assert sum(m.value.count for m in found if isinstance(m.value, Buckets)) == 500
    assert OVERFLOW in {m.attributes for m in found}


def test_a_bucket_leads_to_the_last_span_whose_value_is_in_it() -> None:
    spans = [SpanContext(bytes([n]) * 16, bytes([n]) * 8) for n in (1, 2, 3)]
    longer = replace(CHAT, end_ns=15 * S)
    metrics = ServingMetrics()
    for request, span in zip((CHAT, CHAT, longer), spans, strict=True):
        metrics.add(request, span)
    metrics.add(CHAT)  # its trace is not recorded

    found = metrics.collect()
    _, took = one(found, "http.server.request.duration")
    _, waited = one(found, "gpu.cuda.request.synchronize.duration")

    assert took.count == 4
    assert took.exemplars == {
        1: Exemplar(3.0, 13 * S, spans[1].trace_id, spans[1].span_id),
        2: Exemplar(5.0, 15 * S, spans[2].trace_id, spans[2].span_id),
    }
    assert waited.exemplars == {-2: Exemplar(0.5, 15 * S, spans[2].trace_id, spans[2].span_id)}


def test_what_was_collected_does_not_come_again() -> None:
    metrics = ServingMetrics()
    metrics.add(CHAT)
    metrics.add(replace(CHAT, ending=Ending.AGENT_ENDED))

    assert metrics.collect()
    assert metrics.collect() == []


def test_only_what_is_declared_is_measured() -> None:
    call = replace(CHAT, rpc=RpcCall("a.B/C", 13), totals=GpuTotals(1, 1, 1, 1, 1, 1, 1, 1, 1))
    callback = replace(call, rpc=None, callback=Callback(CallbackKind.TIMER))
    found = collected(call, replace(call, rpc=None), replace(CHAT, ending=Ending.AGENT_ENDED), callback)

    assert {m.metric for m in found} == {s for s in SPECS if s.name != "otel_gpu.unattributed.launches"}
    for m in found:
        assert {k for k, _ in m.attributes} <= set(m.metric.attributes), m.metric.name


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_a_value_lies_in_its_bucket(value: float) -> None:
    index = _bucket(value)

    assert math.ldexp(1, index) < value <= math.ldexp(1, index + 1)


def test_a_clock_that_is_set_back_measures_no_negative_time() -> None:
    (_, histogram) = one(
        collected(replace(CHAT, stream=Stream(2, 1, 0, is_event_stream=True))), "gen_ai.server.time_to_first_token"
    )

    assert (histogram.zero_count, histogram.sum) == (1, 0)
