from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from otel_gpu.errors import OtelGpuError
from otel_gpu.runtime.supervision import Component, Worker
from tests.stopwatch import Stopwatch

DEADLINE_S = 20
Make = Callable[..., Worker]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Worker] = []

    def worker(step: Callable[[], float | None], **more: object) -> Worker:
        made.append(Worker("names", step, **more))
        made[-1].start()
        return made[-1]

    yield worker
    for one in made:
        assert one.stop(DEADLINE_S)


class Steps:
    """Work that raises at chosen steps, and lets a test wait for the others."""

    def __init__(self, errors: dict[int, BaseException], due_s: float = 0.001) -> None:
        self.errors = errors
        self.due_s = due_s
        self.taken = 0
        self._changed = threading.Condition()

    def __call__(self) -> float:
        with self._changed:
            self.taken += 1
            self._changed.notify_all()
            if (error := self.errors.get(self.taken)) is not None:
                raise error
        return self.due_s

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.taken >= count, DEADLINE_S)


@pytest.mark.parametrize(
    "error", [ValueError("bad"), MemoryError(), SystemExit(3), KeyboardInterrupt(), OSError(5, "x")]
)
@pytest.mark.parametrize("at", (1, 2, 5))
def test_a_step_that_raises_is_followed_by_the_next(error: BaseException, at: int, make: Make) -> None:
    steps = Steps({at: error})

    worker = make(steps)
    steps.wait(at + 3)

    assert worker.health().failures == 1
    assert worker.health().is_good


def test_a_failing_component_says_so_until_it_works_again(make: Make) -> None:
    steps = Steps({n: RuntimeError("no\nway") for n in range(1, 4)})
    worker = make(steps)

    steps.wait(3)
    assert worker.health().trouble == "RuntimeError: no way"
    steps.wait(5)

    assert worker.health().is_good
    assert worker.health().failures == 3


def test_pauses_between_failures_grow(make: Make) -> None:
    steps = Steps({n: RuntimeError() for n in range(1, 1000)})
    began = time.monotonic()
    make(steps)

    steps.wait(4)

    assert time.monotonic() - began > 0.1 + 0.2 + 0.4 - 0.05


def test_what_fails_in_the_same_place_is_logged_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps({2: ValueError("one"), 4: ValueError("two"), 6: KeyError("three")})
    with caplog.at_level(logging.DEBUG, "otel_gpu.runtime.supervision"):
        make(steps)
        steps.wait(8)

    # Threads of other tests may still log.
    own = [r for r in caplog.records if r.name == "otel_gpu.runtime.supervision" and r.getMessage().startswith("names")]
    errors = [r.getMessage() for r in own if r.levelno == logging.ERROR]
    assert [e.split(";")[0] for e in errors] == ["names: ValueError: one", "names: KeyError: 'three'"]
    assert [r.exc_info is not None for r in own if r.levelno == logging.DEBUG] == [True, True]


def test_recovery_comes_before_the_step_after_a_failure(make: Make) -> None:
    order: list[str] = []
    done = threading.Event()

    def step() -> float | None:
        order.append("step")
        if order == ["step"]:
            raise ValueError
        done.set()
        return None

    worker = make(step, recover=lambda: order.append("recover"))

    assert done.wait(DEADLINE_S)
    assert worker.join(DEADLINE_S)
    assert order == ["step", "recover", "step"]


def test_a_recovery_that_fails_is_a_failure_too(make: Make) -> None:
    tries: list[int] = []

    def recover() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError

    steps = Steps({1: RuntimeError()})
    worker = make(steps, recover=recover)

    steps.wait(3)
    assert worker.health().failures == 2


def test_a_worker_can_be_woken_from_an_endless_wait(make: Make) -> None:
    steps = Steps({}, math.inf)
    worker = make(steps)
    steps.wait(1)

    worker.wake()

    steps.wait(2)


def test_a_worker_that_is_done_is_in_good_health(make: Make) -> None:
    worker = make(lambda: None)

    assert worker.join(DEADLINE_S)
    assert worker.health().is_good


def test_a_step_that_never_ends_is_said_and_does_not_hold_up_the_stop(make: Make) -> None:
    hold, entered = threading.Event(), threading.Event()

    def step() -> float:
        entered.set()
        hold.wait()
        return 0.0

    worker = make(step, stuck_after_s=0.05)
    assert entered.wait(DEADLINE_S)
    time.sleep(0.1)

    assert worker.health().trouble.startswith("has been at one step for")
    assert not worker.stop(0.05)
    hold.set()


def test_a_worker_stops_at_once_while_it_waits_after_a_failure(make: Make) -> None:
    steps = Steps({n: RuntimeError() for n in range(1, 1000)})
    worker = make(steps)
    steps.wait(5)
    watch = Stopwatch()

    assert worker.stop(DEADLINE_S)

    assert watch.seconds() < 1


def test_no_room_for_a_thread_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    worker = Worker("names", lambda: None)

    with pytest.raises(OtelGpuError, match=r"no thread can be started for names: .*; raise the limit of tasks"):
        worker.start()
    assert not worker.health().is_good


def test_a_part_that_fails_costs_its_step_nothing(make: Make) -> None:
    def step() -> float:
        try:
            raise ValueError("one record")
        except ValueError as e:
            worker.component.note(e)
        steps()
        return 0.001

    steps = Steps({})
    worker = Worker("events", step)
    worker.start()
    steps.wait(3)
    assert worker.stop(DEADLINE_S)

    assert worker.health().failures >= 3
    assert worker.health().is_good


def test_guarded_work_that_fails_costs_nothing_else() -> None:
    component = Component("nvml")

    with component:
        raise MemoryError

    assert component.health().trouble == "MemoryError"
    with component:
        pass
    assert component.health().is_good
    assert component.health().failures == 1


def test_guarded_work_does_not_keep_anybody_from_ending() -> None:
    component = Component("nvml")

    with pytest.raises(KeyboardInterrupt), component:
        raise KeyboardInterrupt
