"""Is what header blocks say told rightly, also where pieces of them are missing or malformed?"""

from __future__ import annotations

import hpack
import pytest

from otel_gpu.bpf.abi.frames import FRAME_GONE, FRAME_PIECE_BYTES, FrameSide
from otel_gpu.discovery.program_id import ProgramId
from otel_gpu.receivers.inference.assembly import Seen
from otel_gpu.receivers.inference.frames import PIECE, Frames
from otel_gpu.receivers.inference.http2 import Exchange
from otel_gpu.receivers.inference.http2_frames import END_HEADERS, PADDED, PRIORITY, FrameType
from otel_gpu.signals.metrics import Resource

PROGRAM = ProgramId(7, 8)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ASKED = ((":method", "POST"), (":path", "/pkg.Service/Do"), (":scheme", "http"), ("content-type", "application/grpc"))


class Wire:
    """One connection, as the kernel tells of it."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._coders = [hpack.Encoder() for _ in FrameSide]
        self._numbers = [0, 0]

    def headers(
        self,
        side: FrameSide,
        request: int,
        *fields: tuple[str, str],
        missing: int = -1,
        kind: FrameType = FrameType.HEADERS,
        flags: int = END_HEADERS,
    ) -> None:
        """Tell of a block in pieces, of which one may be missing."""
        self.frame(side, request, self._coders[side].encode(list(fields)), kind, flags, missing)

    def frame(
        self, side: FrameSide, request: int, payload: bytes, kind: FrameType, flags: int, missing: int = -1
    ) -> None:
        for at in range(0, max(len(payload), 1), FRAME_PIECE_BYTES):
            piece = payload[at : at + FRAME_PIECE_BYTES]
            head = (*PROGRAM, 1, request, 50 + request, self._numbers[side], 2 * request - 1, len(payload), at)
            self._numbers[side] += 1
            if at // FRAME_PIECE_BYTES != missing:
                self._frames.take(PIECE.pack(*head, len(piece), side, kind, flags) + piece)

    def gone(self) -> None:
        self._frames.take(PIECE.pack(*PROGRAM, 1, 0, 0, 0, 0, 0, 0, 0, 0, FRAME_GONE, 0))


@pytest.fixture
def frames() -> Frames:
    return Frames()


@pytest.fixture
def wire(frames: Frames) -> Wire:
    return Wire(frames)


def told(frames: Frames, request: int) -> Exchange:
    return frames.exchange(request, Seen(1, Resource(()), 1000, 2000, pieces=2), lambda ns: ns + 1000)


def test_a_call_of_grpc_has_its_method_and_the_status_of_its_trailers(frames: Frames, wire: Wire) -> None:
    wire.headers(FrameSide.CLIENT, 1, *ASKED, ("traceparent", TRACE))
    wire.headers(FrameSide.SERVER, 1, (":status", "103"))
    wire.headers(FrameSide.SERVER, 1, (":status", "200"), ("content-type", "application/grpc"))
    wire.headers(FrameSide.SERVER, 1, ("grpc-status", "5"))

    assert (parent := frames.parent(1)) is not None
    assert parent.trace_id.hex() == TRACE[3:35]
    found = told(frames, 1)
    assert found.rpc is not None
    assert (found.rpc.method, found.rpc.status_code) == ("pkg.Service/Do", 5)
    assert (found.status, found.traceparents, found.first_byte_ns) == (200, (TRACE,), 1051)
    assert not found.is_lost
    assert frames.lost == 0


def test_a_block_in_many_pieces_and_frames_is_put_together(frames: Frames, wire: Wire) -> None:
    block = hpack.Encoder().encode([*ASKED, *((f"x-{n}", "y" * 40) for n in range(60)), ("traceparent", TRACE)])
    wire.frame(FrameSide.CLIENT, 1, block[:1000], FrameType.HEADERS, 0)
    wire.frame(FrameSide.CLIENT, 1, block[1000:1001], FrameType.CONTINUATION, 0)
    wire.frame(FrameSide.CLIENT, 1, block[1001:], FrameType.CONTINUATION, END_HEADERS)

    assert told(frames, 1).traceparents == (TRACE,)


def test_padding_and_priority_are_no_part_of_a_block(frames: Frames, wire: Wire) -> None:
    block = hpack.Encoder().encode(list(ASKED))
    padded = b"\3" + b"\0\0\0\0\x10" + block + b"\0\0\0"
    wire.frame(FrameSide.CLIENT, 1, padded, FrameType.HEADERS, END_HEADERS | PADDED | PRIORITY)

    found = told(frames, 1)
    assert (found.target, found.is_lost, frames.lost) == ("/pkg.Service/Do", False, 0)


@pytest.mark.parametrize(
    ("payload", "flags"),
    [(b"", PADDED), (b"\x09\x82", PADDED), (b"\x01", PRIORITY), (b"\x80", 0), (b"\xfe", 0), (b"\x00\x7f", 0)],
)
def test_a_malformed_block_is_not_known_and_later_ones_are_right(
    frames: Frames, wire: Wire, payload: bytes, flags: int
) -> None:
    wire.frame(FrameSide.CLIENT, 1, payload, FrameType.HEADERS, END_HEADERS | flags)
    wire.headers(FrameSide.CLIENT, 2, *ASKED)

    assert (told(frames, 1).target, told(frames, 2).target) == ("", "/pkg.Service/Do")
    assert frames.lost == 1


def test_behind_a_piece_that_was_lost_fields_are_right_or_unknown(frames: Frames, wire: Wire) -> None:
    wire.headers(FrameSide.CLIENT, 1, *ASKED)
    wire.headers(FrameSide.CLIENT, 2, *ASKED, ("traceparent", TRACE), missing=0)
    wire.headers(FrameSide.CLIENT, 3, *ASKED, ("traceparent", TRACE))
    wire.headers(FrameSide.CLIENT, 4, (":method", "POST"), (":path", "/other"), (":scheme", "http"))

    assert told(frames, 1).target == "/pkg.Service/Do"
    assert told(frames, 2).is_lost
    third = told(frames, 3)
    assert third.is_lost
    assert (third.method, third.target, third.traceparents) == ("POST", "", ())
    assert told(frames, 4).target == "/other"
    assert frames.lost == 1


def test_malformed_blocks_cost_their_connection_what_it_knew(frames: Frames, wire: Wire) -> None:
    wire.frame(FrameSide.CLIENT, 1, b"\xff" * 64, FrameType.HEADERS, END_HEADERS)
    wire.frame(FrameSide.CLIENT, 2, b"\x82", FrameType.CONTINUATION, END_HEADERS)
    wire.frame(FrameSide.CLIENT, 3, b"x" * 20_000, FrameType.HEADERS, END_HEADERS, missing=22)
    wire.headers(FrameSide.CLIENT, 4, *ASKED)

    assert all(told(frames, number).is_lost for number in (1, 2, 3))
    assert told(frames, 4).target == "/pkg.Service/Do"
    assert frames.lost >= 2


def test_what_ended_is_forgotten(frames: Frames, wire: Wire) -> None:
    wire.headers(FrameSide.CLIENT, 1, *ASKED)
    wire.gone()
    frames.forget({PROGRAM})

    assert frames.parent(1) is None
    assert told(frames, 1).is_lost
