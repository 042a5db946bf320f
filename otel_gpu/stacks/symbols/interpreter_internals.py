"""Which functions of CPython are internals that say nothing? Those that only carry a call from one Python frame to the next.

They are left out of stacks with Python frames: docs/stacks.md. What a Python program would name, such as
`list_sort_impl`, `functools_reduce` or `builtin_exec`, stays.
"""

from __future__ import annotations

import functools
import re

_PREFIXES = (
    # Into the eval loop.
    "_PyEval_", "PyEval_", "_PyFunction_", "_PyCode_", "function_code_fastcall", "_PyStack_", "PyStack_",
    "call_function", "trace_call_function", "do_call_core", "call_unbound",
    "py_trampoline_evaluator",
    # The calling conventions.
    "_PyObject_Vector", "_PyObject_Fast", "_PyObject_Make", "_PyObject_Call", "_PyObject_Init", "_PyObject_IsTrue",
    "PyObject_Vector", "PyObject_Fast", "PyObject_Make", "PyObject_Call", "PyObject_Init", "PyObject_IsTrue",
    "_PyVectorcall", "PyVectorcall", "_Py_VectorCall", "_Py_BuiltinCallFast", "_PyCFunction", "PyCFunction",
    "vectorcall", "method_vectorcall", "cfunction_", "object_vacall", "method_call",
    # Slots and descriptors.
    "slot_tp_", "slot_nb_", "slot_sq_", "slot_mp_", "type_call", "tp_new_wrapper", "wrap_", "wrapper_call",
    "property_descr_get",
    # Generators, and importing.
    "gen_send", "gen_iternext", "_PyGen_", "PyImport_", "_PyImport_", "import_find_and_load", "import_name",
    # From the program's or a thread's start to the first frame.
    "Py_RunMain", "pymain_", "Py_BytesMain", "Py_Main", "_PyRun_", "PyRun_", "pyrun_", "run_mod", "run_eval_code_obj",
    "run_code_obj", "thread_run", "pythread_wrapper", "t_bootstrap",
)  # fmt: skip
_INTERNAL = re.compile("|".join(map(re.escape, _PREFIXES)))


@functools.lru_cache(4096)
def is_internal(function: str) -> bool:
    """Tell whether a function of the interpreter's own file is internal; a name of another file never is."""
    return _INTERNAL.match(function) is not None
