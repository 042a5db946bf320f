"""What do the header blocks of HTTP/2 say that the kernel tells apart from their requests? Pieces of frames, in order.

What programs and their clients send is not believed: a connection
costs at most one block at a time, and what is malformed or missing leaves fields unknown, never wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection

import msgspec

from ...bpf.abi.frames import FRAME_GONE, FRAME_PIECE, FrameSide
from ...bpf.records import names_before, offset_of, struct_of
from ...discovery.program_id import ProgramId
from ...signals.spans import SpanContext
from ...signals.structs import Record
from .assembly import Seen
from .header_blocks import MAX_BLOCK, UNKNOWN, HeaderBlock, HeaderBlocks
from .http2 import Exchange, is_event_stream, rpc_of, status_of
from .http2_frames import END_HEADERS, Frame, FrameType, block_of
from .trace_context import parent_of

PIECE = struct_of(FRAME_PIECE, *names_before(FRAME_PIECE, "pad"), size=offset_of(FRAME_PIECE, "payload"))
"""tgid, exec_id, connection, request, time_ns; number, stream, size, at; bytes, side, type, flags; then the bytes."""
_MOST_CONNECTIONS = 16_384
_MOST_REQUESTS = 65_536


class _Block(Record):
    """A header block that goes on."""

    request: int
    stream: int
    is_promise: bool
    time_ns: int
    bytes: bytes | None
    """None where something of it is missing."""


class _Direction(Record):
    """What one side of a connection has sent."""

    blocks: HeaderBlocks = msgspec.field(default_factory=HeaderBlocks)
    number: int = 0
    """Of the next piece."""
    frame: bytearray | None = None
    """The present one's payload, as far as it has come."""
    block: _Block | None = None


class _Heads(Record):
    """What is known of a request."""

    program: ProgramId
    request: HeaderBlock | None = None
    response: HeaderBlock | None = None
    trailers: HeaderBlock | None = None
    response_ns: int | None = None
    """When the response's head was sent, interim ones left out."""


class Frames:
    """Reads header blocks, and keeps them until their requests are told. Owned by one thread."""

    def __init__(self) -> None:
        self._connections: OrderedDict[tuple[ProgramId, int], tuple[_Direction, _Direction]] = OrderedDict()
        self._heads: OrderedDict[int, _Heads] = OrderedDict()
        self.lost = 0
        """Blocks that were not seen or not understood, with which what later ones refer to is lost."""

    def take(self, record: bytes) -> None:
        """Take in a piece of a frame."""
        if len(record) < PIECE.size:
            return
        tgid, exec_id, connection, request, time_ns, number, stream, size, at, used, side, kind, flags = (
            PIECE.unpack_from(record)
        )
        program = ProgramId(tgid, exec_id)
        if kind == FRAME_GONE:
            self._connections.pop((program, connection), None)
            return
        direction = self._direction(program, connection)[FrameSide(side)]
        payload = record[PIECE.size : PIECE.size + used]
        if number != direction.number:
            self._lose(direction)
        direction.number = number + 1 & 0xFFFF_FFFF
        if at == 0:
            if direction.frame is not None:
                self._lose(direction)
            direction.frame = bytearray()
        elif direction.frame is None or len(direction.frame) != at:
            self._lose(direction)
            return
        direction.frame += payload
        if len(direction.frame) < size:
            return
        frame = Frame(kind, flags, stream, bytes(direction.frame))
        direction.frame = None
        self._frame(direction, frame, _Block(request, stream, kind == FrameType.PUSH_PROMISE, time_ns, b""))
        if flags & END_HEADERS:
            self._end_block(direction, program, FrameSide(side))

    def exchange(self, number: int, seen: Seen, wall_ns: Callable[[int], int]) -> Exchange:
        """Return a request that is over, by what its blocks say; they are forgotten."""
        heads = self._heads.pop(number, None)
        if heads is None:
            heads = _Heads(ProgramId(0, 0), response=UNKNOWN)
        request, response = heads.request or UNKNOWN, heads.response or HeaderBlock()
        trailers = heads.trailers or HeaderBlock()
        return Exchange(
            number,
            seen.start_ns,
            seen.end_ns,
            seen.ending,
            request.value(":method"),
            request.value(":path"),
            request.value(":scheme"),
            request.value(":authority"),
            request.values("traceparent"),
            request.values("tracestate"),
            status_of(response),
            rpc_of(request, response, trailers),
            seen.request_body_bytes or 0,
            seen.response_body_bytes or 0,
            seen.pieces,
            is_event_stream(response),
            seen.first_byte_ns if heads.response_ns is None else wall_ns(heads.response_ns),
            seen.first_piece_ns,
            seen.last_piece_ns,
            not (request.is_whole and response.is_whole and trailers.is_whole),
        )

    def parent(self, number: int) -> SpanContext | None:
        """Return whose child a request is, as far as its blocks have come."""
        heads = self._heads.get(number)
        if heads is None or heads.request is None:
            return None
        return parent_of(heads.request.values("traceparent"), heads.request.values("tracestate"))

    def forget(self, programs: Collection[ProgramId]) -> None:
        """Say that programs have ended, and all their requests are told."""
        for key in [key for key in self._connections if key[0] in programs]:
            del self._connections[key]
        for number in [number for number, heads in self._heads.items() if heads.program in programs]:
            del self._heads[number]

    def _direction(self, program: ProgramId, connection: int) -> tuple[_Direction, _Direction]:
        key = program, connection
        if (found := self._connections.get(key)) is None:
            found = self._connections[key] = (_Direction(), _Direction())
            if len(self._connections) > _MOST_CONNECTIONS:
                self._connections.popitem(last=False)
        self._connections.move_to_end(key)
        return found

    def _lose(self, direction: _Direction) -> None:
        """Say that something was not seen."""
        self.lost += 1
        direction.frame = direction.block = None
        direction.blocks.skip()

    def _frame(self, direction: _Direction, frame: Frame, begun: _Block) -> None:
        """Add a frame to its block."""
        piece, block = block_of(frame), direction.block
        if frame.type == FrameType.CONTINUATION:
            if block is None or block.stream != frame.stream:
                self._lose(direction)
                return
            whole = None if piece is None or block.bytes is None else block.bytes + piece
        else:
            if block is not None:
                self._lose(direction)
            block, whole = begun, piece
        block.bytes = whole if whole is not None and len(whole) <= MAX_BLOCK else None
        direction.block = block

    def _end_block(self, direction: _Direction, program: ProgramId, side: FrameSide) -> None:
        """Read a block that is whole."""
        block, direction.block = direction.block, None
        if block is None:
            return
        had_gap = direction.blocks.has_gap
        if block.bytes is None:
            direction.blocks.skip()
            fields = UNKNOWN
        else:
            fields = direction.blocks.read(block.bytes)
        self.lost += direction.blocks.has_gap and not had_gap
        if block.request and not block.is_promise:
            self._keep(block, program, side, fields)

    def _keep(self, block: _Block, program: ProgramId, side: FrameSide, fields: HeaderBlock) -> None:
        heads = self._heads.get(block.request)
        if heads is None:
            heads = self._heads[block.request] = _Heads(program)
            if len(self._heads) > _MOST_REQUESTS:
                self._heads.popitem(last=False)
        if side is FrameSide.CLIENT:
            if heads.request is None:
                heads.request = fields
            return
        status = fields.value(":status")
        if status.startswith("1") and status != "101":
            return
        if heads.response is None:
            heads.response, heads.response_ns = fields, block.time_ns
        else:
            heads.trailers = fields
