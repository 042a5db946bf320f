from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from otel_gpu.service.ending import Ending
from tests.stopwatch import Stopwatch


def is_going_on() -> bool:
    return any(thread.name == "otel-gpu-stop" for thread in threading.enumerate())


@pytest.fixture
def held() -> Iterator[threading.Event]:
    let_go = threading.Event()
    yield let_go
    let_go.set()
    while is_going_on():
        time.sleep(0.01)


def test_things_are_done_in_their_order_and_told_their_time() -> None:
    done: list[tuple[str, float]] = []
    ending = Ending(100)

    ending.attempt_within("one", lambda s: done.append(("one", s)))
    ending.attempt_within("two", lambda s: done.append(("two", s)), keep_s=10)
    ending.attempt("three", lambda: done.append(("three", 0)))

    assert [name for name, _ in done] == ["one", "two", "three"]
    assert 40 < done[0][1] <= 50
    assert 80 < done[1][1] <= 90
    assert ending.is_complete


def test_what_hangs_leaves_half_of_the_time_to_the_rest(
    held: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    ending = Ending(2)
    began, watch = time.monotonic(), Stopwatch()
    caplog.set_level(logging.INFO)

    ending.attempt("names", held.wait)
    ending.attempt("export", lambda: done.append("export"))
    ending.tell()

    assert time.monotonic() - began >= 1
    assert watch.seconds() < 2
    assert done == ["export"]
    assert not ending.is_complete
    assert is_going_on()
    assert "stopped after 2 s without waiting any longer for names" in caplog.text
    assert "names: threads were at otel_gpu.service.ending." in caplog.text


def test_everything_may_hang_and_the_end_still_comes_in_time(held: threading.Event) -> None:
    ending = Ending(0.5)
    watch = Stopwatch()

    for name in "abcdefgh":
        ending.attempt(name, held.wait)
        ending.release(name, held.wait)

    assert watch.seconds() < 2


def test_what_fails_keeps_nothing_from_being_done(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    ending = Ending(5)

    ending.attempt("names", lambda: {}["no"])
    ending.attempt("export", lambda: done.append("export"))

    assert done == ["export"]
    assert "stop: KeyError: 'no'" in caplog.text


def test_what_is_released_slowly_loses_nothing(held: threading.Event) -> None:
    ending = Ending(0.2)

    ending.release("probes", held.wait)

    assert ending.is_complete
    assert is_going_on()
