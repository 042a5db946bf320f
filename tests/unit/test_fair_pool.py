"""Whose turn is it when many owners have work? Nobody holds up the others, and an owner's tasks keep their order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from otel_gpu.runtime import fair_pool
from otel_gpu.runtime.fair_pool import FairPool


@pytest.fixture
def pools() -> Iterator[list[FairPool]]:
    made: list[FairPool] = []
    yield made
    for pool in made:
        pool.close(5)


def test_the_tasks_of_one_owner_keep_their_order(pools: list[FairPool]) -> None:
    pool = FairPool("test", at_once=4, most=4)
    pools.append(pool)
    done: dict[int, list[int]] = {owner: [] for owner in range(20)}
    for n in range(50):
        for owner, found in done.items():
            pool.submit(owner, partial(found.append, n))
    assert pool.settle(30)
    assert all(found == list(range(50)) for found in done.values())


def test_an_owner_that_waits_holds_up_no_other(pools: list[FairPool]) -> None:
    pool = FairPool("test", at_once=2, most=2)
    pools.append(pool)
    go_on, others = threading.Event(), threading.Semaphore(0)
    for _ in range(100):
        pool.submit("slow", lambda: go_on.wait(30) and None)
    for _ in range(100):
        pool.submit("quick", others.release)
    assert all(others.acquire(timeout=30) for _ in range(100))
    go_on.set()
    assert pool.settle(30)


def test_tasks_that_take_long_do_not_count(pools: list[FairPool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_pool, "_LONG_S", 0.05)
    monkeypatch.setattr(fair_pool, "_LOOK_S", 0.02)
    pool = FairPool("test", at_once=1, most=3)
    pools.append(pool)
    go_on, done = threading.Event(), threading.Event()
    pool.submit(1, lambda: go_on.wait(30) and None)
    pool.submit(2, lambda: go_on.wait(30) and None)
    pool.submit(3, done.set)
    assert done.wait(30)
    go_on.set()


def test_what_is_urgent_comes_first_then_who_has_had_least(pools: list[FairPool]) -> None:
    pool = FairPool("test", at_once=1, most=1, of_one=1)
    pools.append(pool)
    begun, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def hold() -> None:
        begun.set()
        go_on.wait(30)

    pool.submit("busy", hold)
    assert begun.wait(30)
    pool.submit("busy", lambda: order.append("busy"))
    pool.submit("new", lambda: order.append("new"))
    pool.submit("busy", lambda: order.append("urgent"), urgency=-1)
    go_on.set()
    assert pool.settle(30)
    assert order == ["urgent", "new", "busy"]


def test_a_task_that_fails_costs_itself(pools: list[FairPool], caplog: pytest.LogCaptureFixture) -> None:
    pool = FairPool("test")
    pools.append(pool)
    done = threading.Event()

    def fail() -> None:
        raise ZeroDivisionError("no")

    pool.submit(1, fail)
    pool.submit(1, done.set)
    assert done.wait(30)
    assert pool.settle(30)
    assert sum(worker.health().failures for worker in pool.workers) == 1
    assert "ZeroDivisionError" in caplog.text


def test_what_is_forgotten_is_not_run(pools: list[FairPool]) -> None:
    pool = FairPool("test", at_once=1, most=1)
    pools.append(pool)
    begun, go_on, ran = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait(30)

    pool.submit(1, hold)
    assert begun.wait(30)
    pool.submit(2, ran.set)
    pool.forget(2)
    go_on.set()
    assert pool.settle(30)
    assert not ran.is_set()
    assert pool.waiting() == 0


def test_too_many_tasks_are_dropped_and_counted(pools: list[FairPool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_pool, "_MAX_WAITING", 3)
    pool = FairPool("test", at_once=1, most=1)
    pools.append(pool)
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait(30)

    pool.submit(1, hold)
    assert begun.wait(30)
    for _ in range(5):
        pool.submit(2, lambda: None)
    assert pool.dropped == 2
    go_on.set()
    assert pool.settle(30)
