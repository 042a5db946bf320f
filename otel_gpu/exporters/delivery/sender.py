"""How does a request reach its destination without anyone waiting for it? By a queue and a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from ...runtime.supervision import Worker
from ...signals import Signal
from ...signals.structs import Frozen
from ...text import one_line, without_credentials
from .payload import Payload
from .retry import waits
from .settings import RetrySettings
from .statistics import OTHER_ERROR, QUEUE_FULL, SHUTDOWN, ExporterStats, Operation, Outcomes, Tally

_log = logging.getLogger(__name__)

Body = TypeVar("Body")
_BodyT_contra = TypeVar("_BodyT_contra", contravariant=True)

MAX_QUEUE_BYTES = 64 << 20
"""A dead endpoint must not cost more memory than this, however large the requests are."""
_CLOSE_S = 0.5
"""How long a transport is given to close when shutdown's time is over."""
MAX_DELAY_S = 300.0
"""The longest that a server's wish to be left alone is respected."""


class Accepted(Frozen):
    """The receiver took the request, all but `rejected` points of it."""

    rejected: int = 0
    message: str = ""


class Refused(Frozen):
    """The attempt failed; `retryable` says whether another one may succeed."""

    reason: str
    retryable: bool
    delay_s: float | None = None
    """How long the receiver asks to be left alone."""
    error_type: str = OTHER_ERROR
    """The reason, as one of few that there are: a status, or what an exception is called."""


def no_answer(timeout_s: float) -> Refused:
    """Say that an attempt's time was over first."""
    return Refused(f"no answer within {timeout_s:.3g} s", retryable=True, error_type="timeout")


class Transport(Protocol[_BodyT_contra]):
    """Makes one attempt at a time, from the sender's thread."""

    def send(self, body: _BodyT_contra, timeout_s: float) -> Accepted | Refused: ...

    def close(self) -> None:
        """Release the connection, abandoning an attempt that is under way; from any thread."""


class Sender(Generic[Body]):
    """Delivers payloads in order, with retries, from its own thread; `submit` never blocks."""

    def __init__(
        self,
        name: str,
        transport: Transport[Body],
        *,
        timeout_s: float,
        retry: RetrySettings,
        queue_size: int,
        queue_bytes: int = MAX_QUEUE_BYTES,
        signal: Signal = "metrics",
    ) -> None:
        """`signal` is that of payloads that do not say theirs."""
        self._name = name
        self._signal: Signal = signal
        self._transport = transport
        self._timeout_s = timeout_s
        self._retry = retry
        self._queue_size = max(1, queue_size)
        self._queue_bytes = queue_bytes
        self._tally = Tally(f"export of {name}", _log)
        self._changed = threading.Condition()
        self._queue: deque[Payload[Body]] = deque()
        self._queued_bytes = 0
        self._in_flight: Payload[Body] | None = None
        self._not_before = 0.0
        """The earliest time of the next attempt, on the monotonic clock."""
        self._asked = False
        """Whether it was the receiver that asked for that time."""
        self._deadline: float | None = None
        """When everything must be over; set by `shutdown`."""
        self._failed_before = 0
        # An attempt has its own time limit, and the pause before the next one may be longer than any.
        self.worker = Worker(f"export {name}", self._send, recover=self._give_up, stuck_after_s=math.inf)
        self.worker.start()

    def submit(self, payload: Payload[Body]) -> None:
        """Queue a payload; when the queue is full the oldest ones are dropped and counted."""
        dropped: Counter[Signal] = Counter()
        why = QUEUE_FULL
        with self._changed:
            if self._deadline is not None:
                dropped[self._signal_of(payload)] += payload.points
                why = SHUTDOWN
            else:
                self._queue.append(payload)
                self._queued_bytes += payload.size_bytes
                while len(self._queue) > self._queue_size or (
                    self._queued_bytes > self._queue_bytes and len(self._queue) > 1
                ):
                    oldest = self._pop()
                    dropped[self._signal_of(oldest)] += oldest.points
        self.worker.wake()
        self._count_dropped(dropped, why)

    def count_failed(self, points: int) -> None:
        """Count what could not even be made into a payload."""
        self._tally.add(self._signal, failed=points)

    def outcomes(self) -> Outcomes:
        """Say what became of the points of each signal."""
        inflight: Counter[Signal] = Counter()
        with self._changed:
            for payload in self._waiting():
                inflight[self._signal_of(payload)] += payload.points
            return Outcomes(self._tally.exported(), inflight)

    def take_operations(self) -> Iterator[Operation]:
        """Yield the requests that are done with since the last call."""
        return self._tally.take_operations()

    def stats(self) -> ExporterStats:
        with self._changed:
            waiting = self._waiting()
            stats = self._tally.snapshot()
        return replace(stats, queued_points=sum(p.points for p in waiting), queued_requests=len(waiting))

    def shutdown(self, timeout_s: float) -> None:
        """Deliver what is queued within the time given; what is left then counts as dropped."""
        self.close_after(timeout_s)
        self.join()

    def close_after(self, timeout_s: float) -> None:
        """Take nothing more, and be done within the time given; returns at once."""
        with self._changed:
            if self._deadline is None:
                self._deadline = time.monotonic() + timeout_s
                self._failed_before = self._tally.snapshot().failed_points
            self._changed.notify()
        self.worker.wake()

    def join(self) -> None:
        """Wait for the time given to `close_after` at most, and release the connection."""
        self.worker.join(max(0.0, self._closing_left_s()))
        # A transport may wait for what it cancels, an SDK exporter for whatever it likes.
        closing = threading.Thread(target=self._close, name=f"otel-gpu-close-{self._name}"[:60], daemon=True)
        with contextlib.suppress(RuntimeError):  # no room for a thread; what is open is closed with the process
            closing.start()
            closing.join(max(_CLOSE_S, self._closing_left_s()))
        left: Counter[Signal] = Counter()
        with self._changed:
            for payload in self._waiting():
                left[self._signal_of(payload)] += payload.points
            self._in_flight = None
            self._queue.clear()
            self._queued_bytes = 0
        self._count_dropped(left, SHUTDOWN)
        dropped = left.total()
        failed = self._tally.snapshot().failed_points - self._failed_before
        self._failed_before += failed
        if undelivered := dropped + failed:
            _log.warning("export of %s: the last %d points could not be delivered", self._name, undelivered)

    def _close(self) -> None:
        try:
            self._transport.close()
        except Exception as error:  # noqa: BLE001 - an SDK exporter may raise anything; the others must still be closed
            _log.warning("export of %s: closing failed: %s", self._name, one_line(without_credentials(str(error))))

    def _signal_of(self, payload: Payload[Body]) -> Signal:
        return payload.signal or self._signal

    def _waiting(self) -> list[Payload[Body]]:
        return [*self._queue, *([self._in_flight] if self._in_flight else [])]

    def _count_dropped(self, dropped: Counter[Signal], why: str) -> None:
        for signal, points in dropped.items():
            if points:
                self._tally.add(signal, dropped=points, error_type=why)

    def _pop(self) -> Payload[Body]:
        payload = self._queue.popleft()
        self._queued_bytes -= payload.size_bytes
        return payload

    def _send(self) -> float | None:
        with self._changed:
            if not self._queue:
                return math.inf if self._deadline is None else None
            if self._closing_left_s() <= 0:
                return None
            payload = self._in_flight = self._pop()
        return 0.0 if self._deliver(payload) else None

    def _give_up(self) -> None:
        """Count as failed what was being delivered when something went wrong that nobody expected."""
        with self._changed:
            payload, self._in_flight = self._in_flight, None
            if payload is not None:
                self._tally.add(self._signal_of(payload), failed=payload.points)

    def _deliver(self, payload: Payload[Body]) -> bool:
        """Try until the payload is accepted or refused for good; False when shutdown's time is over first."""
        began = time.monotonic()
        tried: float | None = None
        for wait_s in waits(self._retry):
            if not self._wait_for_turn():
                return False
            tried = tried or time.monotonic()
            outcome = self._attempt(payload)
            if isinstance(outcome, Refused) and outcome.retryable:
                asked_s = outcome.delay_s
                delay_s = wait_s if asked_s is None else min(max(asked_s, 0.0), MAX_DELAY_S)
                self._not_before, self._asked = time.monotonic() + delay_s, asked_s is not None
                again = self._may_retry(began, delay_s)
            else:
                again = False
            with self._changed:
                if self._in_flight is not payload:
                    return False  # shutdown has given it up and counted it
                if not again:
                    self._in_flight = None
                # At once: the end counts what it finds here, and writing a line of the log may take longer than it waits.
                self._count(payload, outcome, again)
            self._report(payload, outcome)
            if not again:
                why = outcome.error_type if isinstance(outcome, Refused) else ""
                self._tally.note(Operation(self._signal_of(payload), time.monotonic() - tried, why))
                return True
        raise AssertionError("waits() never ends")

    def _wait_for_turn(self) -> bool:
        """Wait until the next attempt may be made; False when shutdown leaves no time for it."""
        with self._changed:
            while (left_s := self._not_before - time.monotonic()) > 0:
                if left_s >= self._closing_left_s():
                    # No time for our own back-off: one early attempt is better than none. A delay that
                    # the receiver asked for is kept.
                    return not self._asked and self._closing_left_s() > 0
                self._changed.wait(left_s)
        return self._closing_left_s() > 0

    def _attempt(self, payload: Payload[Body]) -> Accepted | Refused:
        timeout_s = max(0.05, min(self._timeout_s, self._closing_left_s()))
        try:
            outcome = self._transport.send(payload.body, timeout_s)
        except Exception as error:  # noqa: BLE001 - a transport's surprise must not end the thread; it is counted
            reason = one_line(without_credentials(str(error)))
            outcome = Refused(f"{type(error).__name__}: {reason}", retryable=False, error_type=type(error).__qualname__)
        self._tally.add(self._signal_of(payload), requests=1)
        return outcome

    def _may_retry(self, began: float, delay_s: float) -> bool:
        if not self._retry.enabled or delay_s >= self._closing_left_s():
            return False
        limit_s = self._retry.max_elapsed_time_s
        return limit_s <= 0 or time.monotonic() + delay_s - began < limit_s

    def _closing_left_s(self) -> float:
        """Return the seconds until shutdown's deadline; infinity when nobody has asked for it."""
        return math.inf if self._deadline is None else self._deadline - time.monotonic()

    def _count(self, payload: Payload[Body], outcome: Accepted | Refused, again: bool) -> None:
        signal = self._signal_of(payload)
        if isinstance(outcome, Accepted):
            rejected = _rejected(payload, outcome)
            self._tally.add(signal, sent=payload.points - rejected, rejected=rejected)
        elif again:
            self._tally.add(signal, retries=1)
        else:
            self._tally.add(signal, failed=payload.points, error_type=outcome.error_type)

    def _report(self, payload: Payload[Body], outcome: Accepted | Refused) -> None:
        if isinstance(outcome, Refused):
            self._tally.down(outcome.reason)
            return
        if rejected := _rejected(payload, outcome):
            self._tally.complain(f"the receiver rejected {rejected} points: {outcome.message or 'no reason given'}")
        elif outcome.message:
            self._tally.complain(f"accepted, but: {outcome.message}")
        self._tally.up()


def _rejected(payload: Payload[Body], accepted: Accepted) -> int:
    """Return how many points the receiver rejected: its word, not trusted to add up."""
    return min(max(accepted.rejected, 0), payload.points)
