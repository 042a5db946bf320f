"""A failed end-to-end test runs again, alone; unit tests and a run with many failures do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_runs import MOST

_ROOT = Path(__file__).parents[2]
_ONCE = """
from pathlib import Path
def test_fails_once():
    print("said by the test")
    seen = Path(__file__).with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("beside others")
"""
_ALWAYS = "def test_fails(): assert not 'always'\n"


def _run(directory: Path, files: dict[str, str], *, workers: bool = False) -> tuple[int, str]:
    (directory / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        path = directory / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    options = ["-n", "2"] if workers else ["-p", "no:xdist"]
    command = [sys.executable, "-P", "-m", "pytest", "-p", "second_runs", *options, "tests"]
    if sys.version_info < (3, 11):
        command.remove("-P")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT / "tests")}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", [False, True])
def test_a_test_that_passes_alone_is_listed_as_unstable_with_both_outputs(tmp_path: Path, workers: bool) -> None:
    code, output = _run(tmp_path, {"e2e/test_once.py": _ONCE, "unit/test_good.py": "def test(): pass"}, workers=workers)

    assert code == 0
    assert "UNSTABLE tests/e2e/test_once.py::test_fails_once" in output
    assert "AssertionError: beside others" in output
    assert output.count("said by the test") >= 2
    assert "1 passed, 1 unstable" in output.splitlines()[-1]


def test_one_that_fails_again_and_unit_tests_stay_failed(tmp_path: Path) -> None:
    files = {"e2e/test_once.py": _ONCE, "e2e/test_always.py": _ALWAYS, "unit/test_other.py": _ONCE}
    code, output = _run(tmp_path, files)

    assert code == 1
    assert "2 failed, 1 unstable" in output.splitlines()[-1]
    assert "FAILED tests/unit/test_other.py::test_fails_once" in output
    assert "FAILED tests/e2e/test_always.py::test_fails" in output


def test_an_error_of_a_fixture_is_run_again_too(tmp_path: Path) -> None:
    text = "import pytest\n" + _ONCE.replace("def test_fails_once()", "@pytest.fixture\ndef made()")
    code, output = _run(tmp_path, {"e2e/test_once.py": text + "def test_uses(made): pass\n"})

    assert code == 0
    assert "1 unstable" in output.splitlines()[-1]


def test_a_run_with_many_failures_stays_as_it_is(tmp_path: Path) -> None:
    code, output = _run(tmp_path, {f"e2e/test_{number}.py": _ONCE for number in range(MOST + 1)})

    assert code == 1
    assert f"{MOST + 1} failed" in output.splitlines()[-1]
