"""A handle has the name that the driver was last asked for, and what a hostile program does is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.kernel_names import kernels
from otel_gpu.kernel_names.kernels import KernelBook, printable

ONE, TWO = (10, 1), (10, 2)


@pytest.fixture
def book() -> KernelBook:
    return KernelBook()


def test_names_belong_to_one_program(book: KernelBook) -> None:
    book.learn(ONE, 0xA, "axpy")

    assert book.name(ONE, 0xA) == "axpy"
    assert book.name(TWO, 0xA) is None
    assert book.name(ONE, 0xB) is None


def test_an_alias_has_the_originals_name(book: KernelBook) -> None:
    book.learn(ONE, 0xA, "axpy")
    book.alias(ONE, 0xB, 0xA)
    book.alias(ONE, 0xC, 0xD)
    book.alias(ONE, 0xA, 0xA)

    assert book.name(ONE, 0xB) == "axpy"
    assert book.name(ONE, 0xC) is None


def test_a_name_outlives_its_module_until_the_handle_is_given_out_again(book: KernelBook) -> None:
    book.learn(ONE, 0xA, "old", module=1)
    book.unload(ONE, 1)
    assert book.name(ONE, 0xA) == "old"

    book.learn(ONE, 0xA, "new", module=2)

    assert book.name(ONE, 0xA) == "new"


def test_a_program_that_has_ended_is_forgotten(book: KernelBook) -> None:
    book.learn(ONE, 0xA, "axpy")
    book.forget(ONE)
    book.unload(ONE, 1)

    assert book.name(ONE, 0xA) is None


def test_kernels_beyond_the_bound_are_refused_and_counted(book: KernelBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MAX_KERNELS", 3)
    for handle in range(5):
        book.learn(ONE, handle, f"k{handle}")
    book.learn(ONE, 2, "again")
    book.alias(ONE, 9, 2)

    assert [book.name(ONE, h) for h in (0, 2, 3, 4, 9)] == ["k0", "again", None, None, None]
    assert book.refused == 3


def test_unloaded_kernels_make_room(book: KernelBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MAX_KERNELS", 3)
    for generation in range(10):
        book.learn(ONE, generation, f"jit{generation}", module=1 + generation)
        book.alias(ONE, 100 + generation, generation)
        book.unload(ONE, 1 + generation)

    assert book.refused == 0
    assert book.name(ONE, 9) == "jit9"
    assert book.name(ONE, 0) is None


@given(st.text())
def test_what_is_shown_is_one_printable_line_of_bounded_length(name: str) -> None:
    shown = printable(name)

    assert shown.isprintable()
    assert shown == name or not name.isprintable()


def test_long_names_are_cut_and_say_so() -> None:
    assert printable("x" * 65_536) == "x" * 4095 + "…"
    assert printable("a\x1b[31m\u202e\n") == r"a\x1b[31m\u202e\n"


def test_what_stands_for_a_kernel_has_its_name_once_that_is_known(book: KernelBook) -> None:
    book.alias(ONE, 0xB, 0xA)

    assert book.name(ONE, 0xB) is None
    assert (book.original(ONE, 0xB), book.original(ONE, 0xA), book.original((7, 7), 1)) == (0xA, 0xA, 1)

    book.learn(ONE, 0xA, "alpha")

    assert book.name(ONE, 0xB) == "alpha"


def test_a_handle_that_is_given_out_again_stands_for_nothing_else(book: KernelBook) -> None:
    book.alias(ONE, 0xB, 0xA)
    book.learn(ONE, 0xB, "beta")
    book.learn(ONE, 0xA, "alpha")

    assert book.name(ONE, 0xB) == "beta"


def test_an_unknown_original_takes_a_name_only_from_what_was_unloaded(book: KernelBook) -> None:
    book.learn(ONE, 0xB, "beta", module=1)

    book.alias(ONE, 0xB, 0xC)
    assert book.name(ONE, 0xB) == "beta"

    book.unload(ONE, 1)
    book.alias(ONE, 0xB, 0xC)
    assert book.name(ONE, 0xB) is None


def test_handles_that_wait_for_a_name_are_bounded(book: KernelBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MAX_KERNELS", 3)

    for handle in range(10):
        book.alias(ONE, 100 + handle, handle)

    assert [book.original(ONE, 100 + handle) for handle in (0, 2, 3)] == [0, 2, 103]
