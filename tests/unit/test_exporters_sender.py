from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from otel_gpu.exporters import ExporterStats
from otel_gpu.exporters.delivery.payload import Payload
from otel_gpu.exporters.delivery.sender import Accepted, Refused, Sender
from otel_gpu.exporters.delivery.settings import RetrySettings
from tests.stopwatch import Stopwatch
from tests.waiting import until

FAST = RetrySettings(initial_interval_s=0.001, max_interval_s=0.002, max_elapsed_time_s=60)
DEADLINE_S = 60.0
DOWN = Refused("connection refused", retryable=True)
DENIED = Refused("HTTP 401", retryable=False)


class Wire:
    """A network of which the test decides what each attempt meets; the last outcome goes on forever."""

    def __init__(self, *outcomes: Accepted | Refused | Exception) -> None:
        self.outcomes = list(outcomes)
        self.attempts: list[str] = []
        self.timeouts: list[float] = []
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()

    def send(self, body: str, timeout_s: float) -> Accepted | Refused:
        self.attempts.append(body)
        self.timeouts.append(timeout_s)
        self.entered.set()
        self.open.wait(timeout_s)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        self.open.set()


Make = Callable[..., "Sender[str]"]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Sender[str]] = []

    def sender(wire: Wire, retry: RetrySettings = FAST, queue_size: int = 100, **more: int) -> Sender[str]:
        made.append(Sender("test", wire, timeout_s=10, retry=retry, queue_size=queue_size, **more))
        return made[-1]

    yield sender
    for one in made:
        one.shutdown(0)


def payload(body: str = "a", points: int = 10) -> Payload[str]:
    return Payload(body, points, 100)


def test_accepted_payloads_arrive_in_order(make: Make) -> None:
    wire = Wire(Accepted())
    sender = make(wire)

    for body in "abc":
        sender.submit(payload(body))
    sender.shutdown(DEADLINE_S)

    assert wire.attempts == ["a", "b", "c"]
    assert (sender.stats().sent_points, sender.stats().requests, sender.stats().queued_points) == (30, 3, 0)


def test_retryable_failure_is_tried_again_with_the_same_body(make: Make) -> None:
    wire = Wire(DOWN, DOWN, Accepted())
    sender = make(wire)

    sender.submit(payload())
    sender.shutdown(DEADLINE_S)

    assert wire.attempts == ["a", "a", "a"]
    assert (sender.stats().sent_points, sender.stats().failed_points, sender.stats().retries) == (10, 0, 2)


@pytest.mark.parametrize("outcome", [DENIED, OSError("surprise")])
def test_permanent_failure_is_counted_and_the_next_payload_goes_on(make: Make, outcome: Refused | Exception) -> None:
    wire = Wire(outcome, Accepted())
    sender = make(wire)

    sender.submit(payload("a", 3))
    sender.submit(payload("b", 4))
    sender.shutdown(DEADLINE_S)

    assert wire.attempts == ["a", "b"]
    assert (sender.stats().failed_points, sender.stats().sent_points) == (3, 4)


def test_what_goes_wrong_in_the_sender_itself_costs_one_payload(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(Accepted())
    sender = make(wire)
    errors, wait = iter([MemoryError()]), sender._wait_for_turn

    def surprised() -> bool:
        for error in errors:
            raise error
        return wait()

    monkeypatch.setattr(sender, "_wait_for_turn", surprised)

    sender.submit(payload("a", 3))
    sender.submit(payload("b", 4))
    sender.shutdown(DEADLINE_S)

    assert wire.attempts == ["b"]
    assert (sender.stats().failed_points, sender.stats().sent_points) == (3, 4)


def test_payload_is_given_up_after_the_longest_elapsed_time(make: Make) -> None:
    sender = make(Wire(DOWN), RetrySettings(initial_interval_s=0.01, max_interval_s=0.01, max_elapsed_time_s=0.05))

    sender.submit(payload())
    until(lambda: sender.stats().failed_points == 10)

    assert sender.stats().retries > 0


def test_retry_can_be_turned_off(make: Make) -> None:
    wire = Wire(DOWN)
    sender = make(wire, RetrySettings(enabled=False))

    sender.submit(payload())
    sender.shutdown(DEADLINE_S)

    assert wire.attempts == ["a"]
    assert sender.stats().failed_points == 10


def test_delay_that_the_receiver_asks_for_is_kept(make: Make) -> None:
    wire = Wire(Refused("busy", retryable=True, delay_s=0.08), Accepted())
    sender = make(wire)

    began = time.monotonic()
    sender.submit(payload())
    until(lambda: sender.stats().sent_points == 10)

    assert time.monotonic() - began >= 0.08


def test_delay_beyond_shutdowns_time_is_not_cut_short(make: Make) -> None:
    wire = Wire(Refused("busy", retryable=True, delay_s=60))
    sender = make(wire, RetrySettings())

    sender.submit(payload("a"))
    until(lambda: sender.stats().retries == 1)
    sender.shutdown(0.5)

    assert wire.attempts == ["a"]
    assert sender.stats().dropped_points == 10


def test_shutdown_cuts_back_off_short_for_one_last_attempt(make: Make) -> None:
    wire = Wire(DOWN, Accepted())
    sender = make(wire, RetrySettings(initial_interval_s=60, max_interval_s=60))

    sender.submit(payload())
    until(lambda: sender.stats().retries == 1)
    sender.shutdown(30)

    assert sender.stats().sent_points == 10


def test_partial_success_is_counted_and_not_retried(make: Make) -> None:
    wire = Wire(Accepted(rejected=4, message="too old"))
    sender = make(wire)

    sender.submit(payload())
    sender.shutdown(DEADLINE_S)

    assert len(wire.attempts) == 1
    assert (sender.stats().sent_points, sender.stats().rejected_points) == (6, 4)


@pytest.mark.parametrize(("claimed", "counted"), [(-5, 0), (2**62, 10)])
def test_absurd_partial_success_stays_within_what_was_sent(make: Make, claimed: int, counted: int) -> None:
    sender = make(Wire(Accepted(rejected=claimed, message="?")))

    sender.submit(payload())
    sender.shutdown(DEADLINE_S)

    assert (sender.stats().sent_points, sender.stats().rejected_points) == (10 - counted, counted)


def test_hanging_endpoint_never_blocks_and_the_oldest_are_dropped(make: Make) -> None:
    wire = Wire(Accepted())
    wire.open.clear()
    sender = make(wire, queue_size=2)
    sender.submit(payload("hangs"))
    wire.entered.wait(DEADLINE_S)

    watch = Stopwatch()
    for body in "abcd":
        sender.submit(payload(body))
    took = watch.seconds()

    assert took < 0.5
    assert (sender.stats().dropped_points, sender.stats().queued_points) == (20, 30)
    wire.open.set()
    sender.shutdown(DEADLINE_S)
    assert wire.attempts == ["hangs", "c", "d"]


def test_queue_is_bounded_by_bytes_too(make: Make) -> None:
    wire = Wire(Accepted())
    wire.open.clear()
    sender = make(wire, queue_bytes=250)
    sender.submit(payload("hangs"))
    wire.entered.wait(DEADLINE_S)

    for body in "abcd":
        sender.submit(payload(body))

    assert sender.stats().dropped_points == 20


def test_shutdown_returns_in_time_from_a_hanging_endpoint_and_counts_what_is_left(make: Make) -> None:
    wire = Wire(Accepted())
    wire.open.clear()
    sender = make(wire)
    for body in "abc":
        sender.submit(payload(body))
    wire.entered.wait(DEADLINE_S)

    watch = Stopwatch()
    sender.shutdown(0.1)

    assert watch.seconds() < 2
    sender.submit(payload("late"))
    time.sleep(0.05)
    assert points_accounted_for(sender.stats()) == 40
    assert sender.stats().dropped_points >= 30


def test_attempts_during_shutdown_end_by_its_deadline(make: Make) -> None:
    wire = Wire(DOWN, Accepted())
    sender = make(wire, RetrySettings(initial_interval_s=0.1, randomization_factor=0))

    sender.submit(payload())
    wire.entered.wait(DEADLINE_S)
    sender.shutdown(5)

    assert wire.timeouts[0] == 10
    assert wire.timeouts[1] <= 5


def test_outage_is_logged_once_and_so_is_its_end(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sender = make(Wire(DOWN, DOWN, DOWN, Accepted()))

    for _ in range(3):
        sender.submit(payload())
    sender.shutdown(DEADLINE_S)

    assert [r.getMessage() for r in caplog.records] == [
        "export of test fails: connection refused",
        "export of test works again",
    ]
    assert sender.stats().last_error is None


def test_what_the_end_leaves_undelivered_is_said_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    sender = make(Wire(DOWN), RetrySettings(initial_interval_s=60))
    for body in "abc":
        sender.submit(payload(body))
    until(lambda: sender.stats().retries == 1)

    sender.shutdown(0.5)
    sender.shutdown(0.5)

    assert [r.getMessage() for r in caplog.records][1:] == ["export of test: the last 30 points could not be delivered"]


def test_every_point_ends_in_exactly_one_statistic(make: Make) -> None:
    outcomes = [Accepted(), DOWN, DENIED, Accepted(rejected=3, message="no")] * 20
    sender = make(Wire(*outcomes), queue_size=5)

    for i in range(200):
        sender.submit(payload(str(i)))
        if i % 40 == 0:
            time.sleep(0.01)
    sender.shutdown(DEADLINE_S)

    assert points_accounted_for(sender.stats()) == 2000


def points_accounted_for(stats: ExporterStats) -> int:
    return stats.sent_points + stats.failed_points + stats.rejected_points + stats.dropped_points + stats.queued_points


def test_what_became_of_points_is_told_by_their_signal_and_the_cause(make: Make) -> None:
    busy = Refused("HTTP 503", retryable=True, error_type="503")
    denied = Refused("HTTP 401", retryable=False, error_type="401")
    wire = Wire(busy, Accepted(), Accepted(rejected=4), denied, OSError("surprise"), Accepted())
    wire.open.clear()
    sender = make(wire, queue_size=4)
    sender.submit(Payload("hangs", 1, 100))
    wire.entered.wait(DEADLINE_S)

    for body, points in (("dropped", 7), ("partly", 10), ("denied", 20)):
        sender.submit(Payload(body, points, 100))
    sender.submit(Payload("raises", 30, 100, "traces"))
    assert sender.outcomes().inflight == {"metrics": 38, "traces": 30}
    sender.submit(Payload("arrives", 40, 100, "traces"))
    assert sender.outcomes().exported == {("metrics", "queue_full"): 7}
    wire.open.set()
    sender.shutdown(DEADLINE_S)
    sender.submit(Payload("late", 50, 100, "profiles"))

    assert sender.outcomes().exported == {
        ("metrics", "queue_full"): 7,
        ("metrics", ""): 1 + 6,
        ("metrics", "rejected"): 4,
        ("metrics", "401"): 20,
        ("traces", "OSError"): 30,
        ("traces", ""): 40,
        ("profiles", "shutdown"): 50,
    }
    assert sender.outcomes().inflight == {}
    # One operation for each request, however often it was tried; each is told once.
    assert [(one.signal, one.error_type) for one in sender.take_operations()] == [
        ("metrics", ""),
        ("metrics", ""),
        ("metrics", "401"),
        ("traces", "OSError"),
        ("traces", ""),
    ]
    assert list(sender.take_operations()) == []


@pytest.mark.parametrize("retry", [FAST, RetrySettings(enabled=False)])
def test_points_are_counted_before_a_line_is_written_of_them(make: Make, retry: RetrySettings) -> None:
    class SlowLog(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "fails" in record.getMessage():
                stats = sender.stats()
                found.append(stats.failed_points + stats.queued_points)

    found: list[int] = []
    handler = SlowLog()
    logger = logging.getLogger("otel_gpu.exporters.delivery.sender")
    logger.addHandler(handler)
    try:
        sender = make(Wire(DOWN), retry)
        sender.submit(payload())
        until(lambda: found)
    finally:
        logger.removeHandler(handler)

    assert found == [10]
