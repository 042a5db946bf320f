"""Does a request's span say what the conventions and the contract have, and no more than is known?"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from opentelemetry.semconv._incubating.attributes import http_attributes, rpc_attributes

from otel_gpu.receivers.inference import conventions
from otel_gpu.receivers.inference.request import (
    Attribution,
    Ending,
    Endpoint,
    GpuTotals,
    GpuWork,
    Request,
    RpcCall,
    Stream,
    WorkKind,
)
from otel_gpu.receivers.inference.server_spans import SpanLimits, spans_of
from otel_gpu.receivers.inference.trace_context import child_of, parent_of
from otel_gpu.signals import telemetry_spans
from otel_gpu.signals.metrics import Resource
from otel_gpu.signals.spans import Span, SpanKind, SpanStatus

HERE = Resource((("service.name", "server"),))
PARENT = parent_of([f"00-{'1' * 32}-{'2' * 16}-01"], ["a=1"])
TOTALS = GpuTotals(3, 1, 2, 1, 0, 4096, 64, 0, 1_500_000)
CHAT = Request(
    HERE,
    1_000,
    9_000,
    "POST",
    "/v1/chat/completions",
    "/v1/chat/completions",
    "1.1",
    200,
    request_body_bytes=10,
    response_body_bytes=99,
    stream=Stream(4, 3_000, 8_000, is_event_stream=True),
    peer=Endpoint("127.0.0.1", 50000),
    local=Endpoint("127.0.0.1", 8000),
    host="localhost:8000",
    parent=PARENT,
    totals=TOTALS,
)


def server(request: Request) -> Span:
    return spans_of(request)[0]


def test_a_request_is_a_span_of_its_server_with_what_the_gpu_did() -> None:
    span = server(CHAT)

    assert (span.resource, span.name, span.kind) == (HERE, "POST /v1/chat/completions", SpanKind.SERVER)
    assert (span.start_ns, span.end_ns, span.status) == (1_000, 9_000, SpanStatus.UNSET)
    assert dict(span.attributes) == {
        "client.address": "127.0.0.1",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.stream": True,
        "gpu.cuda.graph.launch.calls": 1,
        "gpu.cuda.kernel.launch.calls": 3,
        "gpu.cuda.memory.copy.bytes.d2h": 64,
        "gpu.cuda.memory.copy.bytes.h2d": 4096,
        "gpu.cuda.memory.copy.calls.d2h": 1,
        "gpu.cuda.memory.copy.calls.h2d": 2,
        "gpu.cuda.synchronize.duration": 0.0015,
        "http.request.body.size": 10,
        "http.request.method": "POST",
        "http.response.body.size": 99,
        "http.response.status_code": 200,
        "network.peer.address": "127.0.0.1",
        "network.peer.port": 50000,
        "network.protocol.version": "1.1",
        "otel_gpu.attribution": "exact",
        "server.address": "localhost",
        "server.port": 8000,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "url.template": "/v1/chat/completions",
    }


def test_every_span_is_declared() -> None:
    call = replace(CHAT, rpc=RpcCall("a.B/C", 12), ending=Ending.AGENT_ENDED, work_left_out=1)
    brewed = replace(CHAT, method="BREW", totals=GpuTotals(1, 1, 1, 1, 1, 1, 1, 1, 1), status=500, work=WORK)

    for request in (CHAT, call, brewed):
        assert all(telemetry_spans.declaration(span) for span in spans_of(request))


def test_a_span_is_the_remote_childs_of_its_traceparent() -> None:
    span = server(CHAT)

    assert PARENT is not None
    assert (span.context.trace_id, span.parent_id) == (PARENT.trace_id, PARENT.span_id)
    assert span.is_parent_remote
    assert span.context.trace_state == "a=1"
    assert span.context.span_id != PARENT.span_id


def test_a_request_without_a_parent_begins_a_trace() -> None:
    span = server(replace(CHAT, parent=None))

    assert (span.parent_id, span.is_parent_remote) == (b"", False)
    assert span.context.is_sampled


def test_a_name_that_was_given_before_is_kept() -> None:
    context = child_of(PARENT)

    assert server(replace(CHAT, context=context)).context == context


def test_what_the_caller_does_not_record_gets_no_spans() -> None:
    parent = parent_of([f"00-{'1' * 32}-{'2' * 16}-00"])
    work = (GpuWork(WorkKind.BATCH, 1, 2),)

    assert spans_of(replace(CHAT, parent=parent, work=work)) == []


def test_totals_that_are_not_known_are_left_out_and_zero_launches_said() -> None:
    assert "gpu.cuda.kernel.launch.calls" not in dict(server(replace(CHAT, totals=GpuTotals())).attributes)
    nothing = dict(server(replace(CHAT, totals=GpuTotals(*[0] * 9))).attributes)
    assert {k: v for k, v in nothing.items() if k.startswith("gpu.")} == {"gpu.cuda.kernel.launch.calls": 0}


def test_a_share_of_a_batch_says_so() -> None:
    assert dict(server(replace(CHAT, attribution=Attribution.SHARE)).attributes)["otel_gpu.attribution"] == "share"


@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        ({"status": 404}, SpanStatus.UNSET, None),
        ({"status": 499}, SpanStatus.UNSET, None),
        ({"status": 500}, SpanStatus.ERROR, "500"),
        ({"status": 503}, SpanStatus.ERROR, "503"),
        ({"status": None}, SpanStatus.UNSET, None),
        ({"status": None, "ending": Ending.CONNECTION_CLOSED}, SpanStatus.ERROR, "connection_closed"),
        ({"ending": Ending.CONNECTION_CLOSED}, SpanStatus.ERROR, "connection_closed"),
        ({"ending": Ending.AGENT_ENDED}, SpanStatus.UNSET, None),
    ],
)
def test_the_servers_faults_are_errors(changes: dict[str, object], status: SpanStatus, error: str | None) -> None:
    span = server(replace(CHAT, **changes))  # type: ignore[arg-type]

    assert span.status is status
    assert span.status_message == ""
    assert dict(span.attributes).get("error.type") == error


@pytest.mark.parametrize("ending", Ending)
def test_a_span_that_is_cut_says_why(ending: Ending) -> None:
    assert dict(server(replace(CHAT, ending=ending)).attributes).get("otel_gpu.cut", "") == ending.value


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"method": "GET", "path": "/items/42", "route": "/items/{id}"}, "GET /items/{id}"),
        ({"route": "other"}, "POST"),
        ({"route": ""}, "POST"),
        ({"method": "BREW"}, "HTTP /v1/chat/completions"),
        ({"method": "", "route": "", "path": ""}, "HTTP"),
    ],
)
def test_a_span_is_named_by_method_and_route(changes: dict[str, str], name: str) -> None:
    assert server(replace(CHAT, **changes)).name == name  # type: ignore[arg-type]


def test_a_method_that_is_not_known_is_kept_beside_its_stand_in() -> None:
    found = dict(server(replace(CHAT, method="BREW")).attributes)

    assert (found["http.request.method"], found["http.request.method_original"]) == ("_OTHER", "BREW")
    assert "http.request.method" not in dict(server(replace(CHAT, method="")).attributes)


def test_a_path_is_shown_beside_the_route() -> None:
    found = dict(server(replace(CHAT, path="/items/42", route="/items/{id}")).attributes)

    assert (found["url.path"], found["url.template"]) == ("/items/42", "/items/{id}")
    assert "http.route" not in found


@pytest.mark.parametrize(
    ("host", "address", "port"),
    [
        ("example.com", "example.com", None),
        ("example.com:81", "example.com", 81),
        ("[::1]:81", "::1", 81),
        ("a:0", "a", None),
        ("a:99999", "a", None),
        ("", "127.0.0.1", 8000),
        ("a/b", "127.0.0.1", 8000),
        ("a b", "127.0.0.1", 8000),
        ("\x1b[31m", "127.0.0.1", 8000),
        ("h" * 300, "127.0.0.1", 8000),
    ],
)
def test_a_server_is_what_the_client_asked_for_or_where_it_listens(host: str, address: str, port: int | None) -> None:
    found = dict(server(replace(CHAT, host=host)).attributes)

    assert (found["server.address"], found.get("server.port")) == (address, port)


def test_a_unix_socket_has_no_port() -> None:
    found = dict(server(replace(CHAT, host="", peer=None, local=Endpoint("/run/\nx"))).attributes)

    assert found["server.address"] == "/run/\\nx"
    assert not {"server.port", "client.address", "network.peer.address"} & set(found)


WORK = (
    GpuWork(WorkKind.COPY, 1_100, 1_200, GpuTotals(copies_h2d=1, bytes_h2d=4096)),
    GpuWork(WorkKind.BATCH, 1_200, 5_000, GpuTotals(launches=3)),
    GpuWork(WorkKind.WAIT, 4_000, 5_000, GpuTotals(synchronize_ns=1_000)),
)


def test_work_gets_spans_of_its_own_below_the_request() -> None:
    parent, *children = spans_of(replace(CHAT, work=WORK))

    assert [(c.name, c.start_ns, c.end_ns) for c in children] == [
        ("gpu copy", 1_100, 1_200),
        ("gpu batch", 1_200, 5_000),
        ("gpu wait", 4_000, 5_000),
    ]
    assert {c.kind for c in children} == {SpanKind.INTERNAL}
    assert {(c.parent_id, c.context.trace_id) for c in children} == {(parent.context.span_id, parent.context.trace_id)}
    assert len({s.context.span_id for s in (parent, *children)}) == 4
    assert not any(c.is_parent_remote for c in children)
    assert dict(children[0].attributes) == {
        "gpu.cuda.memory.copy.bytes.h2d": 4096,
        "gpu.cuda.memory.copy.calls.h2d": 1,
        "otel_gpu.attribution": "exact",
    }


def test_of_much_work_the_longest_has_spans_and_the_rest_is_counted() -> None:
    parent, *children = spans_of(replace(CHAT, work=WORK, work_left_out=5), SpanLimits(max_children=2))

    assert [c.name for c in children] == ["gpu batch", "gpu wait"]
    assert dict(parent.attributes)["otel_gpu.spans.left_out"] == 6
    assert "otel_gpu.spans.left_out" not in dict(server(replace(CHAT, work=WORK)).attributes)


@pytest.mark.parametrize(
    ("code", "name", "status"),
    [(0, "OK", False), (5, "NOT_FOUND", False), (13, "INTERNAL", True), (99, "_OTHER", False), (None, None, False)],
)
def test_a_call_has_the_conventions_for_calls(code: int | None, name: str | None, status: bool) -> None:
    span = server(replace(CHAT, version="2", rpc=RpcCall("pkg.Greeter/Hello", code)))
    found = dict(span.attributes)

    assert span.name == found["rpc.method"] == "pkg.Greeter/Hello"
    assert found.get("rpc.response.status_code") == name
    assert found["rpc.system.name"] == "grpc"
    assert (span.status is SpanStatus.ERROR) is status
    assert found.get("error.type") == (name if status else None)
    assert not [key for key in found if key.startswith(("http.", "url.", "gen_ai."))]
    assert found["gpu.cuda.kernel.launch.calls"] == 3


def test_a_method_that_the_server_does_not_have_names_no_span() -> None:
    span = server(replace(CHAT, rpc=RpcCall("any.Thing/AtAll", 12)))

    assert span.name == "_OTHER"
    assert dict(span.attributes)["rpc.method_original"] == "any.Thing/AtAll"


def test_the_known_methods_and_statuses_are_the_conventions() -> None:
    methods = {value.value for value in http_attributes.HttpRequestMethodValues}
    statuses = {value.name: value.value for value in rpc_attributes.RpcGrpcStatusCodeValues}

    assert methods == conventions._METHODS | {conventions.OTHER_METHOD}
    assert statuses == {name: number for number, name in enumerate(conventions._STATUSES)}
