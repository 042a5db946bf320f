"""A handle has the name that the driver was last asked for, and what a hostile program does is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.cuda.kernel_names import kernels
from otel_gpu.receivers.cuda.kernel_names.kernels import KernelTable, printable

ONE, TWO = (10, 1), (10, 2)


@pytest.fixture
def table() -> KernelTable:
    return KernelTable()


def test_names_belong_to_one_program(table: KernelTable) -> None:
    table.learn(ONE, 0xA, "axpy")

    assert table.name(ONE, 0xA) == "axpy"
    assert table.name(TWO, 0xA) is None
    assert table.name(ONE, 0xB) is None


def test_an_alias_has_the_originals_name(table: KernelTable) -> None:
    table.learn(ONE, 0xA, "axpy")
    table.alias(ONE, 0xB, 0xA)
    table.alias(ONE, 0xC, 0xD)
    table.alias(ONE, 0xA, 0xA)

    assert table.name(ONE, 0xB) == "axpy"
    assert table.name(ONE, 0xC) is None


def test_a_name_outlives_its_module_until_the_handle_is_given_out_again(table: KernelTable) -> None:
    table.learn(ONE, 0xA, "old", module=1)
    table.unload(ONE, 1)
    assert table.name(ONE, 0xA) == "old"

    table.learn(ONE, 0xA, "new", module=2)

    assert table.name(ONE, 0xA) == "new"


def test_a_program_that_has_ended_is_forgotten(table: KernelTable) -> None:
    table.learn(ONE, 0xA, "axpy")
    table.forget(ONE)
    table.unload(ONE, 1)

    assert table.name(ONE, 0xA) is None


def test_kernels_beyond_the_bound_are_refused_and_counted(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MAX_KERNELS", 3)
    for handle in range(5):
        table.learn(ONE, handle, f"k{handle}")
    table.learn(ONE, 2, "again")
    table.alias(ONE, 9, 2)

    assert [table.name(ONE, h) for h in (0, 2, 3, 4, 9)] == ["k0", "again", None, None, None]
    assert table.refused == 3


def test_unloaded_kernels_make_room(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MAX_KERNELS", 3)
    for generation in range(10):
        table.learn(ONE, generation, f"jit{generation}", module=1 + generation)
        table.alias(ONE, 100 + generation, generation)
        table.unload(ONE, 1 + generation)

    assert table.refused == 0
    assert table.name(ONE, 9) == "jit9"
    assert table.name(ONE, 0) is None


@given(st.text())
def test_what_is_shown_is_one_printable_line_of_bounded_length(name: str) -> None:
    shown = printable(name)

    assert shown.isprintable()
    assert shown == name or not name.isprintable()


def test_long_names_are_cut_and_say_so() -> None:
    assert printable("x" * 65_536) == "x" * 4095 + "…"
    assert printable("a\x1b[31m\u202e\n") == r"a\x1b[31m\u202e\n"


def test_what_stands_for_a_kernel_has_its_name_once_that_is_known(table: KernelTable) -> None:
    table.alias(ONE, 0xB, 0xA)

    assert table.name(ONE, 0xB) is None
    assert (table.original(ONE, 0xB), table.original(ONE, 0xA), table.original((7, 7), 1)) == (0xA, 0xA, 1)

    table.learn(ONE, 0xA, "alpha")

    assert table.name(ONE, 0xB) == "alpha"


def test_a_handle_that_is_given_out_again_stands_for_nothing_else(table: KernelTable) -> None:
    table.alias(ONE, 0xB, 0xA)
    table.learn(ONE, 0xB, "beta")
    table.learn(ONE, 0xA, "alpha")

    assert table.name(ONE, 0xB) == "beta"


def test_an_unknown_original_takes_a_name_only_from_what_was_unloaded(table: KernelTable) -> None:
    table.learn(ONE, 0xB, "beta", module=1)

    table.alias(ONE, 0xB, 0xC)
    assert table.name(ONE, 0xB) == "beta"

    table.unload(ONE, 1)
    table.alias(ONE, 0xB, 0xC)
    assert table.name(ONE, 0xB) is None


def test_handles_that_wait_for_a_name_are_bounded(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MAX_KERNELS", 3)

    for handle in range(10):
        table.alias(ONE, 100 + handle, handle)

    assert [table.original(ONE, 100 + handle) for handle in (0, 2, 3)] == [0, 2, 103]
