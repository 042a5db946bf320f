"""How long is a client waited for that says nothing, or reads nothing? So long, and less where others want its place."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_OPEN = 128
"""Connections; beyond them a request is told that there is no room (503)."""
KEEP_ALIVE_S = 30
"""Between two requests."""
STALLED_S = 10.0
"""So long a client may take to say what it began to say, and to read what it asked for."""
_LOOK_S = 2.5
_KEPT_FREE = 16
"""A page asks over some connections at once."""


class ClientDeadlines(H11Protocol):
    """Gives up clients for which the view waits: after a time each, and the longest waiting first where there are many.

    A close would wait until the client has read what it was sent, and that may be for good: so they are cut off.
    """

    since = 0.0
    """When the client had its turn, by the clock of the loop."""
    _cycle: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        others = [c for c in self._open() if c is not self]
        if len(others) > MAX_OPEN - _KEPT_FREE:
            # Neither browsers nor exporters send a request before the last one is answered.
            found = [c for c in others if c.waits()] or [c for c in others if c.conn.trailing_data[0]]
            if found:
                min(found, key=lambda c: c.since).transport.abort()
        self.loop.call_later(_LOOK_S, self._look)

    def data_received(self, data: bytes) -> None:
        was_idle = self._is_between_requests()
        # Uvicorn counts those that were cut off as well, and what is done for them still: until the loop has come to them.
        self.limit_concurrency = None if len(self._open()) <= MAX_OPEN else 0
        super().data_received(data)
        # Else what comes drop by drop would be news each time.
        if was_idle or self.cycle is not self._cycle:
            self._cycle, self.since = self.cycle, self.loop.time()

    def _open(self) -> list[ClientDeadlines]:
        return [c for c in self.connections if isinstance(c, ClientDeadlines) and not c.transport.is_closing()]

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def resume_writing(self) -> None:
        self.since = self.loop.time()
        super().resume_writing()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _is_between_requests(self) -> bool:
        is_idle = self.cycle is not None and not self._is_answering() and not self.conn.trailing_data[0]
        return is_idle and not self.transport.get_write_buffer_size() and not self.transport.is_closing()

    def waits(self) -> bool:
        """Say whether it is the client's turn."""
        return not self._is_answering() or self.cycle.more_body or self.transport.get_write_buffer_size() > 0

    def _look(self) -> None:
        if self not in self.connections:
            return
        limit = KEEP_ALIVE_S + STALLED_S if self._is_between_requests() else STALLED_S
        if self.waits() and self.loop.time() - self.since > limit:
            self.transport.abort()
        else:
            self.loop.call_later(_LOOK_S, self._look)
