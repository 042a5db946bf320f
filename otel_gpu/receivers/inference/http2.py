"""Which requests are on an HTTP/2 connection? Its streams, read from what was captured of its two directions.

Where bytes were not captured, header blocks may be lost, and with them what later blocks refer to: what is not known of
a stream is said, and where frames are lost its streams end there.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field

from .header_blocks import MAX_BLOCK, UNKNOWN, HeaderBlock, HeaderBlocks
from .http2_frames import END_HEADERS, END_STREAM, Frame, FrameReader, FrameType, block_of
from .request import Ending, RpcCall

MAX_STREAMS = 256
"""Of a connection that are followed at once; servers allow 100 or so."""
_MAX_CONTINUATIONS = 16

_RPC_METHOD = re.compile(r"/([A-Za-z0-9_.\-]{1,200}/[A-Za-z0-9_.\-]{1,100})\Z")
_STATUS = re.compile(r"[1-9][0-9]{2}\Z")
_RPC_STATUS = re.compile(r"[0-9]{1,9}\Z")


class Side(enum.IntEnum):
    """Who sent it."""

    CLIENT = 0
    SERVER = 1


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response, as far as they were seen."""

    stream: int
    start_ns: int
    end_ns: int
    ending: Ending
    method: str = ""
    """Empty where it is not known, as all that follows."""
    target: str = ""
    """The `:path`, each byte a character."""
    scheme: str = ""
    authority: str = ""
    traceparents: tuple[str, ...] = ()
    tracestates: tuple[str, ...] = ()
    status: int | None = None
    rpc: RpcCall | None = None
    request_body_bytes: int = 0
    """With what pads it."""
    response_body_bytes: int = 0
    chunks: int = 0
    """Frames of data in the response."""
    is_event_stream: bool = False
    first_byte_ns: int | None = None
    first_chunk_ns: int | None = None
    last_chunk_ns: int | None = None
    is_lost: bool = False
    """Whether fields were not known: what is missing may have been there."""


@dataclass(slots=True)
class _Stream:
    """One that is open."""

    start_ns: int
    request: HeaderBlock
    response: HeaderBlock | None = None
    trailers: HeaderBlock | None = None
    body_bytes: list[int] = field(default_factory=lambda: [0, 0])
    chunks: int = 0
    first_byte_ns: int | None = None
    first_chunk_ns: int | None = None
    last_chunk_ns: int | None = None


@dataclass(slots=True)
class _Pending:
    """A header block that goes on in further frames."""

    stream: int
    flags: int
    is_promise: bool
    block: bytes | None
    frames: int = 1


class Connection:
    """Follows one connection, from its start or from anywhere."""

    def __init__(self, *, from_start: bool = True, max_streams: int = MAX_STREAMS) -> None:
        self._max_streams = max_streams
        self._frames = tuple(FrameReader(has_preface=s is Side.CLIENT, from_start=from_start) for s in Side)
        self._blocks = tuple(HeaderBlocks(from_start=from_start) for _ in Side)
        self._pending: list[_Pending | None] = [None, None]
        self._streams: dict[int, _Stream] = {}
        self._ended: list[Exchange] = []
        self.streams_left_out = 0
        """Requests that had no room."""

    @property
    def is_lost(self) -> bool:
        """Tell whether something of either direction was not seen or understood, so that requests may lack something."""
        return any(frames.is_lost for frames in self._frames) or any(blocks.has_gap for blocks in self._blocks)

    @property
    def open_streams(self) -> int:
        """How many requests are going on."""
        return len(self._streams)

    def take(self, side: Side, captured: bytes, now_ns: int, size: int | None = None) -> list[Exchange]:
        """Take what one side sent: of `size` bytes the first are captured. Return the requests that ended with it."""
        frames = self._frames[side]
        was_lost = frames.is_lost
        for frame in frames.take(captured, size):
            self._frame(side, frame, now_ns)
        if frames.is_lost and not was_lost:
            self._pending[side] = None
            self._blocks[side].skip()
            self._end_all(now_ns, Ending.PROTOCOL_LOST)
        ended, self._ended = self._ended, []
        return ended

    def close(self, now_ns: int, ending: Ending = Ending.CONNECTION_CLOSED) -> list[Exchange]:
        """End what is going on; return it."""
        self._end_all(now_ns, ending)
        ended, self._ended = self._ended, []
        return ended

    def _frame(self, side: Side, frame: Frame, now_ns: int) -> None:
        pending = self._pending[side]
        if pending is not None and (frame.type != FrameType.CONTINUATION or frame.stream != pending.stream):
            # Nothing may come in between.
            self._pending[side] = None
            self._headers(side, pending, now_ns, UNKNOWN)
            self._blocks[side].skip()
        match frame.type:
            case FrameType.HEADERS | FrameType.PUSH_PROMISE:
                is_promise = frame.type == FrameType.PUSH_PROMISE
                self._pending[side] = _Pending(frame.stream, frame.flags, is_promise, block_of(frame))
                self._end_block(side, frame.flags, now_ns)
            case FrameType.CONTINUATION:
                self._continue(side, frame, now_ns)
            case FrameType.DATA:
                self._data(side, frame, now_ns)
            case FrameType.RST_STREAM:
                self._end(frame.stream, now_ns, Ending.CONNECTION_CLOSED)

    def _continue(self, side: Side, frame: Frame, now_ns: int) -> None:
        pending = self._pending[side]
        if pending is None:
            self._blocks[side].skip()
            return
        pending.frames += 1
        piece = block_of(frame)
        if (
            pending.block is None
            or piece is None
            or pending.frames > _MAX_CONTINUATIONS
            or len(pending.block) + len(piece) > MAX_BLOCK
        ):
            pending.block = None
        else:
            pending.block += piece
        self._end_block(side, frame.flags, now_ns)

    def _end_block(self, side: Side, flags: int, now_ns: int) -> None:
        """Read a header block if it is whole."""
        pending = self._pending[side]
        if pending is None or not flags & END_HEADERS:
            return
        self._pending[side] = None
        blocks = self._blocks[side]
        if pending.block is None:
            blocks.skip()
        self._headers(side, pending, now_ns, UNKNOWN if pending.block is None else blocks.read(pending.block))

    def _headers(self, side: Side, pending: _Pending, now_ns: int, block: HeaderBlock) -> None:
        if pending.is_promise:
            return  # a request that the server makes up is nobody's
        stream = self._streams.get(pending.stream)
        if side is Side.CLIENT:
            if stream is None and pending.stream % 2:
                self._begin(pending.stream, now_ns, block)
            return
        if stream is None:
            return  # it began before, or had no room
        status = block.value(":status")
        if not status.startswith("1") or status == "101":
            if stream.response is None:
                stream.response, stream.first_byte_ns = block, now_ns
            else:
                stream.trailers = block
        if pending.flags & END_STREAM:
            self._end(pending.stream, now_ns, Ending.COMPLETE)

    def _begin(self, number: int, now_ns: int, block: HeaderBlock) -> None:
        if len(self._streams) >= self._max_streams:
            self.streams_left_out += 1
            return
        self._streams[number] = _Stream(now_ns, block)

    def _data(self, side: Side, frame: Frame, now_ns: int) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None:
            return
        stream.body_bytes[side] += frame.size_bytes
        if side is Side.SERVER:
            if frame.size_bytes:
                stream.chunks += 1
                if stream.first_chunk_ns is None:
                    stream.first_chunk_ns = now_ns
                stream.last_chunk_ns = now_ns
            if frame.flags & END_STREAM:
                self._end(frame.stream, now_ns, Ending.COMPLETE)

    def _end_all(self, now_ns: int, ending: Ending) -> None:
        for number in list(self._streams):
            self._end(number, now_ns, ending)

    def _end(self, number: int, now_ns: int, ending: Ending) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            self._ended.append(_exchange(number, stream, now_ns, ending))


def _exchange(number: int, stream: _Stream, now_ns: int, ending: Ending) -> Exchange:
    request, response = stream.request, stream.response or HeaderBlock()
    trailers = stream.trailers or HeaderBlock()
    return Exchange(
        number,
        stream.start_ns,
        max(now_ns, stream.start_ns),
        ending,
        request.value(":method"),
        request.value(":path"),
        request.value(":scheme"),
        request.value(":authority"),
        request.values("traceparent"),
        request.values("tracestate"),
        status_of(response),
        rpc_of(request, response, trailers),
        stream.body_bytes[Side.CLIENT],
        stream.body_bytes[Side.SERVER],
        stream.chunks,
        is_event_stream(response),
        stream.first_byte_ns,
        stream.first_chunk_ns,
        stream.last_chunk_ns,
        not (request.is_whole and response.is_whole and trailers.is_whole),
    )


def status_of(response: HeaderBlock) -> int | None:
    """Return the status that a response has."""
    status = response.value(":status")
    return int(status) if _STATUS.match(status) else None


def is_event_stream(response: HeaderBlock) -> bool:
    """Tell whether a response is made of server-sent events."""
    return response.value("content-type").partition(";")[0].strip(" ").lower() == "text/event-stream"


def rpc_of(request: HeaderBlock, response: HeaderBlock, trailers: HeaderBlock) -> RpcCall | None:
    """Return the call that a request is, if it is one of gRPC."""
    types = (request.value("content-type"), response.value("content-type"))
    if not any(t == "application/grpc" or t.startswith(("application/grpc+", "application/grpc;")) for t in types):
        return None
    match = _RPC_METHOD.match(request.value(":path"))
    code = trailers.value("grpc-status") or response.value("grpc-status")
    return RpcCall(match[1] if match else "", int(code) if _RPC_STATUS.match(code) else None)
