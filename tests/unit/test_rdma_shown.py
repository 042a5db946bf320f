"""Which queue pairs have their numbers: the busiest ones, few at a time and few in a program's life?"""

from __future__ import annotations

import numpy as np
import pytest

from otel_gpu.bpf.abi.rdma import QPN_NONE, QUEUE_PAIR
from otel_gpu.discovery.program_id import ProgramId
from otel_gpu.receivers.rdma.shown import ShownPairs


def _pairs(*each: tuple[int, int, int, int]) -> np.ndarray:
    """Return pairs by id, process, number and what they posted."""
    pairs = np.zeros(len(each), QUEUE_PAIR)
    for pair, (number, tgid, qpn, posted) in zip(pairs, each, strict=True):
        pair["id"], pair["key"]["tgid"], pair["key"]["qpn"], pair["posted"] = number, tgid, qpn, posted
    return pairs


def _chosen(shown: ShownPairs, pairs: np.ndarray, worked: list[int] | None = None) -> frozenset[int]:
    shown.choose(pairs, np.array(range(len(pairs)) if worked is None else worked, np.intp))
    return shown.ids


def test_each_program_has_its_busiest_whatever_others_do() -> None:
    shown = ShownPairs(2)

    assert _chosen(shown, _pairs((1, 7, 17, 1), (2, 8, 17, 500), (3, 7, 18, 3), (4, 7, 19, 2), (5, 8, 18, 400))) == {
        2,
        3,
        4,
        5,
    }
    shown.forget([ProgramId(8, 0)])
    assert shown.ids == {3, 4}


def test_of_those_that_do_the_same_the_first_are_shown() -> None:
    assert _chosen(ShownPairs(2), _pairs(*((n, 7, 16 + n, 5) for n in range(1, 6)))) == {1, 2}


def test_what_found_no_room_is_no_pair() -> None:
    assert _chosen(ShownPairs(1), _pairs((1, 7, QPN_NONE, 1000), (2, 7, 17, 1))) == {2}


def test_what_is_received_is_work_too() -> None:
    pairs = _pairs((1, 7, 17, 10), (2, 7, 18, 0))
    pairs["awaited"][1] = 11
    assert _chosen(ShownPairs(1), pairs) == {2}


@pytest.mark.parametrize(("posted", "is_taken"), [(19, False), (20, True)])
def test_a_place_is_taken_by_twice_as_much(posted: int, *, is_taken: bool) -> None:
    shown = ShownPairs(1)
    _chosen(shown, _pairs((1, 7, 17, 10), (2, 7, 18, 1)))

    assert _chosen(shown, _pairs((1, 7, 17, 10), (2, 7, 18, posted)), [1]) == {2 if is_taken else 1}


def test_a_pair_that_is_gone_leaves_its_place() -> None:
    shown = ShownPairs(1)
    _chosen(shown, _pairs((1, 7, 17, 1000)))

    assert _chosen(shown, _pairs((2, 7, 18, 1))) == {2}


def test_a_program_has_no_more_than_twice_as_many_numbers_in_its_life() -> None:
    shown = ShownPairs(2)
    ever = set()
    for n in range(1, 100):
        ever |= _chosen(shown, _pairs((n, 7, 16 + n, n)))

    assert ever == {1, 2, 3, 4}


def test_a_number_that_comes_again_is_none_more() -> None:
    shown = ShownPairs(1)
    for n in range(1, 100):
        assert _chosen(shown, _pairs((n, 7, 17 + n % 2, 1))) == {n}


def test_none_are_shown_where_none_are_asked_for() -> None:
    assert _chosen(ShownPairs(0), _pairs((1, 7, 17, 1))) == frozenset()
