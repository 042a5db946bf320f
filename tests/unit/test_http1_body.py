"""Is the end of a body found, by sizes alone where they tell, in whatever pieces it comes?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.inference.http1_body import MAX_CHUNK_LINE, MAX_TRAILERS, Body
from otel_gpu.receivers.inference.http1_heads import Framing

CHUNKED = b'5;ext="x"\r\nhello\r\n0000A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n'


def test_no_body_is_complete_at_once() -> None:
    for body in (Body(Framing.NONE), Body(Framing.LENGTH, 0)):
        assert body.is_complete
        assert body.take(b"GET / HTTP/1.1") == 0


def test_a_length_is_followed_by_sizes_alone() -> None:
    body = Body(Framing.LENGTH, 1000)

    assert body.take(b"", 400) == 400
    assert body.take(b"abc", 500) == 500
    assert not body.is_complete
    assert body.take(b"GET /", 300) == 100
    assert body.is_complete
    assert body.body_bytes == 1000


def test_chunks_are_followed_to_the_byte() -> None:
    body = Body(Framing.CHUNKED)

    assert body.take(CHUNKED + b"next") == len(CHUNKED)
    assert body.is_complete
    assert (body.body_bytes, body.chunks) == (15, 2)


@pytest.mark.parametrize("piece", range(1, 20))
def test_chunks_come_in_pieces_of_any_size(piece: int) -> None:
    body = Body(Framing.CHUNKED)
    taken = sum(body.take(CHUNKED[at : at + piece]) for at in range(0, len(CHUNKED), piece))

    assert (taken, body.is_complete, body.body_bytes) == (len(CHUNKED), True, 15)


def test_data_of_chunks_need_not_be_captured() -> None:
    body = Body(Framing.CHUNKED)

    assert body.take(b"ffff\r\n", 6 + 0xFFFF) == 6 + 0xFFFF
    assert body.take(b"\r\n0\r\n\r\n") == 7
    assert body.is_complete
    assert body.body_bytes == 0xFFFF


def test_what_frames_chunks_has_to_be_captured() -> None:
    body = Body(Framing.CHUNKED)

    assert body.take(b"5\r\nhel", 50) == 50
    assert body.is_lost
    assert not body.close()


@pytest.mark.parametrize("more", [1, 2])
def test_a_line_end_behind_a_chunk_may_be_passed_over_in_what_a_server_sends(more: int) -> None:
    body = Body(Framing.CHUNKED, skips_line_ends=True)

    assert body.take(b"5\r\n", 8 + more) == 8 + more
    assert body.take(b"\r\n"[more:] + b"3\r\nabc\r\n0\r\n\r\n")
    assert body.is_complete
    assert (body.body_bytes, body.chunks) == (8, 2)


def test_what_lies_behind_that_line_end_has_to_be_captured() -> None:
    body = Body(Framing.CHUNKED, skips_line_ends=True)
    body.take(b"5\r\n", 11)

    assert body.is_lost


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"5\nhello",
        b"5\r\r\nhello",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"0x5\r\nhello",
        b"-5\r\nhello",
        b"+5\r\n",
        b" 5\r\n",
        b"5 x\r\n",
        b"5;a\rb\r\n",
        b"5;a\0b\r\n",
        b"g\r\n",
        b"1" * 16 + b"\r\n",
        b"5;" + b"x" * MAX_CHUNK_LINE,
        b"0\r\nX: y\n\r\n",
        b"0\r\n" + b"X: y\r\n" * (MAX_TRAILERS // 4),
    ],
)
def test_malformed_chunks_are_lost_and_what_follows_is_no_request(data: bytes) -> None:
    body = Body(Framing.CHUNKED)

    assert body.take(data + b"GET / HTTP/1.1\r\n\r\n") == len(data) + 18
    assert body.is_lost
    assert body.take(b"0\r\n\r\n") == 5
    assert not body.is_complete


def test_a_body_may_end_with_its_connection() -> None:
    body = Body(Framing.UNTIL_CLOSE)

    assert body.take(b"", 1 << 40) == 1 << 40
    assert not body.is_complete
    assert body.close()
    assert body.body_bytes == 1 << 40


def test_a_body_that_is_cut_short_by_its_connection_is_not_whole() -> None:
    body = Body(Framing.LENGTH, 10)
    body.take(b"abc")

    assert not body.close()


def test_a_body_that_is_not_known_takes_everything() -> None:
    body = Body(Framing.UNKNOWN)

    assert body.take(b"x", 100) == 100
    assert body.is_lost


@given(st.lists(st.binary(min_size=1, max_size=300)), st.lists(st.integers(1, 400), min_size=1), st.binary(max_size=20))
def test_any_chunks_in_any_pieces(chunks: list[bytes], pieces: list[int], rest: bytes) -> None:
    data = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    stream, at, taken = data + rest, 0, 0
    body = Body(Framing.CHUNKED)
    for n in range(len(stream)):
        piece = stream[at : at + pieces[n % len(pieces)]]
        at += len(piece)
        taken += body.take(piece)

    assert (taken, body.is_complete, body.body_bytes) == (len(data), True, sum(map(len, chunks)))


@given(st.binary(max_size=300), st.integers(0, 1000), st.booleans())
def test_any_bytes_are_taken_within_bounds(data: bytes, more: int, skips: bool) -> None:
    body = Body(Framing.CHUNKED, skips_line_ends=skips)

    assert 0 <= body.take(data, len(data) + more) <= len(data) + more
