"""Is a thread walked wherever it happens to be? Timer ticks in the middle of everything a program does."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import CPU, FrameKind, Profile, is_truncated
from tests.cpythons import Interpreter, interpreters
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.samples import record_samples, record_until, stacks_of

_HERE = [i for i in interpreters() if not i.missing and "chroot" not in i.command]
_MARKED = 10
"""From 3.10 on an activation of the eval loop can be told from one that has only begun."""


@pytest.mark.parametrize("interpreter", _HERE, ids=lambda i: i.name)
def test_almost_every_tick_gives_a_whole_stack(interpreter: Interpreter, tmp_path: Path) -> None:
    with Program([*interpreter.command, ground.PROGRAMS / "busy.py", "1"], tmp_path) as program:
        program.ready()
        with Recording(program.pid, (CPU,)) as recorder:
            (profile,) = record_samples(recorder, 150)

    assert profile.total > 40
    assert profile.truncated <= profile.total * (0.03 if interpreter.minor >= _MARKED else 0.06)
    for sample in profile.samples:
        python = [f.function.rpartition(".")[2] for f in sample.stack if f.kind is FrameKind.CPYTHON]
        # Nothing below the outermost frame, as where an activation got the frames of another.
        if "<module>" in python:
            assert python[-1] == "<module>"
            outermost = max(i for i, f in enumerate(sample.stack) if f.function == "<module>")
            assert "sum" not in " ".join(f.function for f in sample.stack[outermost:])


# What stands below a function, from its thread's start on; the functions of `threading` are left out.
_BELOW = {
    "main_works": [],
    "shared_works": ["shared_begins", "<module>", "shared_thread"],
    "own_works": ["own_begins", "<module>", "own_thread"],
    "nested_works": ["nested_begins", "<module>", "between_begins", "<module>", "nested_thread"],
}


def _all_have_worked(profiles: list[Profile]) -> bool:
    found = {f.function for stack in stacks_of(profiles) if not is_truncated(stack) for f in stack}
    return found >= _BELOW.keys() and sum(p.total for p in profiles) >= 150


@pytest.mark.parametrize("interpreter", _HERE, ids=lambda i: i.name)
def test_ticks_in_any_interpreter_give_the_frames_of_each_in_order(interpreter: Interpreter, tmp_path: Path) -> None:
    with Program([*interpreter.command, ground.PROGRAMS / "busy_interpreters.py"], tmp_path) as program:
        program.ready()
        with Recording(program.pid, (CPU,)) as recorder:
            # Where they share one lock they take turns.
            (profile,) = record_until(recorder, _all_have_worked)

    assert profile.total > 40
    assert profile.truncated <= profile.total * 0.03
    seen = set()
    for sample in profile.samples:
        if is_truncated(sample.stack):
            continue
        python = [f for f in sample.stack if f.kind is FrameKind.CPYTHON and not f.filename.endswith("threading.py")]
        names = [f.function for f in python]
        worker = next(name for name in names if name in _BELOW)
        seen.add(worker)
        below = names[names.index(worker) + 1 :]
        assert below == (_BELOW[worker] or ["<module>"])
        assert all(name.rpartition(".")[2] in ("<genexpr>", "<lambda>") for name in names[: names.index(worker)])
    assert seen == _BELOW.keys()
