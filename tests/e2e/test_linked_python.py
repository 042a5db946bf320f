"""Do programs that hold a static CPython have Python functions on their stacks, exported, not exported, and stripped?"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import GPU_LAUNCHES, Stack, is_truncated
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.stack_truth import captured, python_part

_SOURCE, _SCRIPT = ground.PROGRAMS / "linked_python.c", ground.PROGRAMS / "linked_python.py"
_PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
_LIBRARIES = ("-lpthread", "-ldl", "-lutil", "-lm")
_IN_SHORT = (8, 11, 13)
"""Versions that `make test` links; `make test-all` links every one."""


def _versions(first: int, last: int) -> pytest.MarkDecorator:
    of_all = [pytest.mark.every_python]
    minors = range(first, last + 1)
    return pytest.mark.parametrize("minor", [pytest.param(m, marks=[] if m in _IN_SHORT else of_all) for m in minors])


def _linked(minor: int, directory: Path, *flags: str) -> tuple[Path, dict[str, str]]:
    """Link a program with a static CPython; return it, and the environment that it needs."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    libraries = sorted(_PYENV.glob(f"3.{minor}.*/lib/python3.{minor}/config-*/libpython3.{minor}.a"))
    if not libraries:
        pytest.skip(f"pyenv has no static CPython 3.{minor} here")
    home = libraries[-1].parents[3]
    program = directory / "linked_python"
    command = [
        compiler,
        "-O1",
        f"-I{home}/include/python3.{minor}",
        *flags,
        "-o",
        program,
        _SOURCE,
        libraries[-1],
        *_LIBRARIES,
    ]
    subprocess.run(command, check=True)
    return program, {"PYTHONHOME": str(home), "MOCKCUDA_TRUTH": ""}


def _record(
    program: Path, environment: dict[str, str], directory: Path, *before: Path
) -> tuple[dict[str, list], dict[str, Stack]]:
    with Program([*before, program, _SCRIPT], directory, environment) as running:
        running.ready()
        with Recording(running.pid, (GPU_LAUNCHES,)) as recorder:
            assert recorder.settle()
            running.go()
            running.event("loaded")
            recorder.start()
            said = running.run_phase()["stacks"]
            stacks = captured(recorder.finish())
    assert stacks.keys() == said.keys()
    assert len(stacks) == 8
    return {kernel: [tuple(frame) for frame in frames] for kernel, frames in said.items()}, stacks


def _assert_whole(said: dict[str, list], stacks: dict[str, Stack]) -> None:
    assert {kernel: python_part(stack) for kernel, stack in stacks.items()} == said
    assert not [stack[-1] for stack in stacks.values() if is_truncated(stack)]


@_versions(8, 13)
@pytest.mark.parametrize("flags", [(), ("-rdynamic",)], ids=["not exported", "exported"])
def test_a_program_that_holds_a_cpython_has_python_functions(
    minor: int, flags: tuple[str, ...], tmp_path: Path
) -> None:
    _assert_whole(*_record(*_linked(minor, tmp_path, *flags), tmp_path))


def test_one_that_was_stripped_has_them_from_3_13_on(tmp_path: Path) -> None:
    _assert_whole(*_record(*_linked(13, tmp_path, "-s"), tmp_path))


@pytest.mark.parametrize(("minor", "flags"), [(8, ()), (12, ()), (13, ()), (13, ("-s",))])
def test_a_library_that_hides_its_cpython_is_no_other(minor: int, flags: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "exports").write_text("{ global: Py_BytesMain; local: *; };")
    hidden = ("-shared", "-fPIC", f"-Wl,--version-script={tmp_path}/exports", *flags)
    library, environment = _linked(minor, tmp_path, *hidden)
    launcher = tmp_path / "launcher"
    subprocess.run(["cc", "-O1", "-o", launcher, ground.PROGRAMS / "python_launcher.c", "-ldl"], check=True)

    _assert_whole(*_record(library, environment, tmp_path, launcher))


@_versions(8, 12)
def test_an_older_one_that_was_stripped_says_why_it_has_none(
    minor: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program, environment = _linked(minor, tmp_path, "-s")

    with caplog.at_level(logging.WARNING):
        _, stacks = _record(program, environment, tmp_path)

    assert not [stack for stack in stacks.values() if python_part(stack)]
    (line,) = (r.getMessage() for r in caplog.records if str(program) in r.getMessage())
    assert "was stripped of its symbols" in line
    assert "-rdynamic" in line
