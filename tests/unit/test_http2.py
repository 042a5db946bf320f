"""Is what header blocks say right, or unknown, and what is a call of gRPC?"""

from __future__ import annotations

import random

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.receivers.inference.header_blocks import HeaderBlock, HeaderBlocks
from otel_gpu.receivers.inference.http2 import is_event_stream, rpc_of, status_of
from otel_gpu.receivers.inference.request import RpcCall

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ASKED = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/embeddings"), (":authority", "here:8000")]


def test_fields_behind_a_gap_are_right_or_not_known() -> None:
    encoder, blocks = hpack.Encoder(), HeaderBlocks()
    first = [*ASKED, ("traceparent", TRACE)]
    second = [*ASKED[:2], (":path", "/new"), ASKED[3], ("traceparent", TRACE.replace("a", "b"))]
    encoder.encode(first)
    blocks.skip()

    found = blocks.read(encoder.encode(second))
    assert found.value(":path") == "/new"
    assert found.value(":authority") == ""
    # Its name is in the field that was not seen.
    assert found.value("traceparent") == ""
    assert not found.is_whole

    again = blocks.read(encoder.encode(second))
    assert (again.value(":path"), again.value("traceparent")) == ("/new", "")


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 12), st.booleans())
def test_whatever_blocks_are_missing_no_field_is_wrong(seed: int, each: int, small: bool) -> None:
    chance = random.Random(seed)
    encoder, blocks = hpack.Encoder(), HeaderBlocks(from_start=chance.random() < 0.5)
    if small:
        encoder.header_table_size = chance.choice([0, 64, 200, 4096])
    for _ in range(60):
        path = "/" + "p" * chance.randrange(80) + str(chance.randrange(6))
        trace = f"00-{chance.randrange(4)}"
        fields = [(":method", chance.choice(["GET", "POST"])), (":path", path), ("traceparent", trace), ("x", "y" * 70)]
        data = encoder.encode(fields)
        if chance.randrange(each) == 0:
            blocks.skip()
            continue
        found = blocks.read(data)
        assert set(found.fields) <= set(fields)
        assert set(found.fields) == set(fields[:3]) or not found.is_whole


def call(*, asked: str = "/pkg.Greeter/Hello", kind: str = "application/grpc", code: str = "0") -> RpcCall | None:
    request = HeaderBlock(((":path", asked), ("content-type", kind)))
    return rpc_of(request, HeaderBlock(), HeaderBlock((("grpc-status", code),)))


def test_a_call_of_grpc_has_its_method_and_status() -> None:
    assert call() == RpcCall("pkg.Greeter/Hello", 0)
    assert call(kind="application/grpc+proto", code="13") == RpcCall("pkg.Greeter/Hello", 13)
    assert call(kind="application/grpcx") is None
    assert call(kind="application/json") is None


@pytest.mark.parametrize("asked", ["/", "/a", "/a/b/c", "/a b/c", "/a/\x1b", "/" + "a" * 300 + "/b", "a/b"])
def test_a_path_that_is_no_method_names_none(asked: str) -> None:
    assert call(asked=asked) == RpcCall("", 0)


@pytest.mark.parametrize("code", ["", "-1", "0x1", "1.5", "9" * 10, "¹"])
def test_a_status_that_is_no_number_is_none(code: str) -> None:
    assert call(code=code) == RpcCall("pkg.Greeter/Hello", None)
    assert status_of(HeaderBlock(((":status", code),))) is None


def test_a_response_of_trailers_alone_has_a_status() -> None:
    response = HeaderBlock(((":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "12")))

    assert rpc_of(HeaderBlock(((":path", "/a.B/C"),)), response, HeaderBlock()) == RpcCall("a.B/C", 12)
    assert status_of(response) == 200


@pytest.mark.parametrize(
    ("kind", "is_one"),
    [("text/event-stream", True), ("Text/Event-Stream ; x", True), ("text/plain", False), ("", False)],
)
def test_a_response_of_events_says_so(kind: str, is_one: bool) -> None:
    assert is_event_stream(HeaderBlock((("content-type", kind),))) is is_one
