"""Does one program's excess keep others from being looked at?"""

from __future__ import annotations

from otel_gpu.receivers.cuda.kernel_names.fair_queue import FairQueue

LOUD, QUIET = (1, 1), (2, 1)


def test_a_program_that_fills_the_room_leaves_some_to_others() -> None:
    turns: FairQueue[str] = FairQueue(100)

    put = [turns.put(LOUD, "loud") for _ in range(200)]

    assert put.count(True) == 50
    assert [turns.put(QUIET, "quiet") for _ in range(200)].count(True) == 25
    assert turns.unfinished == 75


def test_programs_take_turns() -> None:
    turns: FairQueue[str] = FairQueue(1_000)
    for _ in range(300):
        turns.put(LOUD, "loud")
    turns.put(QUIET, "first")
    turns.put(QUIET, "second")

    assert turns.take(4) == ["loud", "first", "loud", "second"]
    assert turns.take(1_000) == ["loud"] * 298
    assert turns.take(1) == []


def test_room_is_given_back_when_an_item_is_done_with() -> None:
    turns: FairQueue[int] = FairQueue(4)
    assert turns.put(LOUD, 1)
    assert turns.put(LOUD, 2)
    assert not turns.put(LOUD, 3)

    assert turns.take(10) == [1, 2]
    assert turns.unfinished == 2
    assert not turns.put(LOUD, 3)
    turns.done(LOUD)

    assert turns.put(LOUD, 3)
    assert turns.take(10) == [3]
    assert turns.holds([QUIET, LOUD])
    assert not turns.holds([QUIET])
    assert turns.holds()
