"""Which functions of the interpreter are left out?"""

from __future__ import annotations

import pytest

from otel_gpu.stacks.symbols.interpreter_internals import is_internal


@pytest.mark.parametrize(
    "name",
    ["_PyEval_Vector", "PyObject_Vectorcall", "_PyObject_MakeTpCall", "Py_RunMain", "slot_tp_call", "gen_send_ex2"],
)
def test_what_carries_a_call_is_internal(name: str) -> None:
    assert is_internal(name)


@pytest.mark.parametrize(
    "name",
    ["functools_reduce", "list_sort_impl", "cuLaunchKernel", "PyCFuncPtr_call", "builtin_exec", "list_extend", ""],
)
def test_what_says_something_is_not(name: str) -> None:
    assert not is_internal(name)
