"""A handle is one kernel after another: counts go to the one that it was."""

from __future__ import annotations

from otel_gpu.receivers.cuda.kernel_handles import KernelHandles, handle_of

PROGRAM, ANOTHER = (4711, 1), (4711, 2)
HANDLE, OTHER = 0x7F00_1234_5670, 0x7F00_1234_5680
IS_OTHER, FORGOTTEN = 1 << 16, 1 << 17


def test_a_handle_that_was_never_another_kernel_is_its_own_key() -> None:
    handles = KernelHandles()

    assert handles.named(PROGRAM, HANDLE, 0) == HANDLE
    assert handles.key(PROGRAM, HANDLE) == handles.key(PROGRAM, HANDLE, 0) == HANDLE


def test_each_kernel_of_a_handle_has_a_key() -> None:
    handles = KernelHandles()
    named = [handles.named(PROGRAM, HANDLE, generation | IS_OTHER) for generation in range(3)]

    assert [handles.key(PROGRAM, HANDLE, generation) for generation in range(3)] == named
    assert len(set(named)) == 3
    assert {handle_of(key) for key in named if key is not None} == {HANDLE}
    assert handles.key(PROGRAM, HANDLE) == handles.named(PROGRAM, HANDLE, 2) == named[2]


def test_others_are_what_they_were() -> None:
    handles = KernelHandles()
    handles.named(PROGRAM, HANDLE, 1 | IS_OTHER)

    assert handles.key(PROGRAM, OTHER) == OTHER
    assert handles.key(ANOTHER, HANDLE) == HANDLE


def test_what_follows_a_record_that_was_dropped_has_a_key_of_its_own() -> None:
    handles = KernelHandles()
    first = handles.named(PROGRAM, HANDLE, 1 | IS_OTHER)

    assert handles.key(PROGRAM, HANDLE, 2) not in (HANDLE, first)
    assert handles.key(PROGRAM, HANDLE) == first


def test_a_name_that_may_change_untold_is_none() -> None:
    handles = KernelHandles()

    assert handles.named(PROGRAM, HANDLE, FORGOTTEN) is None


def test_generations_may_begin_anew() -> None:
    handles = KernelHandles()
    last = handles.named(PROGRAM, HANDLE, (1 << 16) - 1 | IS_OTHER)

    assert handles.named(PROGRAM, HANDLE, 0 | IS_OTHER) == handles.key(PROGRAM, HANDLE) == HANDLE != last


def test_a_program_that_has_ended_leaves_nothing() -> None:
    handles = KernelHandles()
    handles.named(PROGRAM, HANDLE, 1 | IS_OTHER)

    handles.forget(PROGRAM)

    assert handles.key(PROGRAM, HANDLE) == HANDLE
    assert not handles._latest
