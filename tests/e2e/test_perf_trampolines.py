"""Are stacks whole through the trampolines that CPython makes for perf, with each function once?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import GPU_LAUNCHES, Stack, is_truncated
from tests.cpythons import Interpreter, interpreters
from tests.e2e.stack_truth import Truth, captured, launching, python_part, truths

_ALL = [i for i in interpreters() if i.minor >= 12]
_TOO_DEEP = ("too_deep", "recursion")
"""Between two Python frames are two or three of C's then."""
_WAYS = (("PYTHONPERFSUPPORT", 12), ("PYTHON_PERF_JIT_SUPPORT", 13))
_IN_SHORT = {(13, "PYTHONPERFSUPPORT"), (15, "PYTHON_PERF_JIT_SUPPORT")}
"""One for each shape that trampolines have; `make test-all` runs all."""


def _case(cpython: Interpreter, variable: str) -> object:
    marks = [] if (cpython.minor, variable) in _IN_SHORT else [pytest.mark.every_python]
    return pytest.param(cpython, variable, id=f"{cpython.name} {variable}", marks=marks)


CASES = [_case(i, variable) for i in _ALL for variable, since in _WAYS if i.minor >= since]


def _launches(interpreter: Interpreter, directory: Path) -> tuple[dict[str, Truth], dict[str, Stack]]:
    directory.mkdir()
    with launching(interpreter, directory) as program, Recording(program.pid, (GPU_LAUNCHES,)) as recorder:
        program.process.stdin.write("load\n")
        program.process.stdin.flush()
        program.event("phase")
        assert recorder.settle()
        recorder.start()
        program.process.stdin.write("launch\n")
        program.process.stdin.flush()
        truth = truths(program.event("phase"))
        stacks = captured(recorder.finish())
        for noted in (f"perf-{program.pid}.map", f"jit-{program.pid}.dump"):
            Path(f"/proc/{program.pid}/root/tmp/{noted}").unlink(missing_ok=True)
    assert stacks.keys() == truth.keys()
    return truth, stacks


@pytest.mark.parametrize(("cpython", "variable"), CASES)
def test_stacks_are_what_they_are_without_trampolines(cpython: Interpreter, variable: str, tmp_path: Path) -> None:
    if cpython.missing:
        pytest.skip(cpython.missing)
    _, without = _launches(cpython, tmp_path / "without")

    truth, stacks = _launches(replace(cpython, environment=((variable, "1"),)), tmp_path / "with")

    kernels = [kernel for kernel in truth if not kernel.startswith(_TOO_DEEP)]
    problems = {k: stacks[k][-1].function for k in kernels if is_truncated(stacks[k])}
    problems |= {k: python_part(stacks[k]) for k in kernels if python_part(stacks[k]) != truth[k].python}
    assert not problems
    assert {k: _in_other_files(stacks[k]) for k in kernels} == {k: _in_other_files(without[k]) for k in kernels}


def _in_other_files(stack: Stack) -> list[tuple[str, int]]:
    """Return the C functions that are not CPython's own: those call the eval loop in another way then."""
    native = ((Path(f.mapping.path).name, f.address) for f in stack if f.mapping is not None)
    return [(name, address) for name, address in native if not name.startswith(("python3", "libpython3"))]
