"""Do heads that were seen before say what they say when they are read, within bounds?"""

from __future__ import annotations

import pytest

from otel_gpu.receivers.inference import head_cache
from otel_gpu.receivers.inference.head_cache import Answered, Asked, RequestHeads, ResponseHeads

HEAD = b"GET /items/%d HTTP/1.1\r\nHost: here\r\n%sAccept: */*\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ndate: Sun, 22 Nov 2026 20:%02d:00 GMT\r\nContent-Type: text/event-stream\r\n\r\n"


def trace(n: int) -> str:
    return f"00-{n + 1:032x}-{n + 1:016x}-01"


def line(n: int, name: bytes = b"traceparent") -> bytes:
    return name + b": " + trace(n).encode() + b"\r\n"


@pytest.mark.parametrize("name", [b"traceparent", b"Traceparent", b"TraceParent", b"TRACEPARENT"])
def test_the_same_head_has_a_trace_of_its_own_each_time(name: bytes) -> None:
    heads = RequestHeads()
    for n in range(5):
        asked, traceparents = heads.read(HEAD % (1, line(n, name)) + b"body")

        assert (asked.method, asked.path, asked.template, asked.host) == ("GET", "/items/1", "/items/{id}", "here")
        assert traceparents == (trace(n),)
    assert heads.read(HEAD % (1, b""))[1] == ()


@pytest.mark.parametrize(
    ("more", "count"),
    [
        (line(1) + line(2), 2),
        (line(1) + b"traceparent: x\r\n", 2),
        (b"traceparent: x\r\n", 1),
        (b"traceparent: " + trace(1).encode() + b"\r\n more\r\n", 1),
        (b"x-traceparent: " + trace(1).encode() + b"\r\n", 0),
        (b"x: y\ntraceparent: " + trace(1).encode() + b"\r\n", 1),
    ],
)
def test_whatever_stands_in_such_lines_is_read(more: bytes, count: int) -> None:
    heads = RequestHeads()

    first, second = heads.read(HEAD % (1, more)), heads.read(HEAD % (1, more))
    assert first == second
    assert len(first[1]) == count


def test_a_response_is_the_same_at_another_time() -> None:
    heads = ResponseHeads()

    assert {heads.read(ANSWER % n, "GET") for n in range(9)} == {
        Answered(200, is_event_stream=True, has_no_length=True)
    }
    assert len(heads._memory._known) == 1
    assert not heads.read(ANSWER % 1, "HEAD").has_no_length


def test_an_interim_response_is_not_taken_for_the_final_one() -> None:
    heads = ResponseHeads()
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"

    assert heads.read(interim, "GET") == Answered()
    assert heads.read(interim + ANSWER % 1, "GET").status == 200
    assert heads.read(interim, "GET") == Answered()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_cache, "MAX_HEADS", 10)
    heads = RequestHeads()
    for n in range(100):
        assert heads.read(HEAD % (n, b""))[0].path == f"/items/{n}"
        assert len(heads._memory._known) <= 10
    heads.read(HEAD % (1, b"X: " + b"y" * 5000 + b"\r\n"))
    assert all(len(head) < 100 for _, head in heads._memory._known)


@pytest.mark.parametrize("captured", [b"", b"\r\n\r\n", b"\x16\x03\x01", b"\r\n\r\n\r\n\r\n"])
def test_what_is_no_head_says_nothing(captured: bytes) -> None:
    assert RequestHeads().read(captured) == (Asked(), ())
    assert ResponseHeads().read(captured, "GET") == Answered()


def test_empty_lines_before_a_request_end_no_head() -> None:
    assert RequestHeads().read(b"\r\n\r\n" + HEAD % (1, line(1)))[1] == (trace(1),)
