"""Does any file of the working directory, or a variable, get code into our processes?"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from otel_gpu.runtime import isolated
from otel_gpu.sandbox.files import RootedFile
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.stacks.unwind.table_work import shapes
from tests.traps import AT_START, LATER, STANDARD, Traps

ROOT = Path(isolated.__file__).parents[2]
SCRIPT = Path(sysconfig.get_path("scripts")) / "otel-gpu"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTHON"))}
# Loads the configuration's libraries, and is exit code 2 in one line.
MISTAKE = ("run", "--output", "paper")


def run(command: Sequence[str | Path], directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, env={**CLEAN, **variables}, capture_output=True, text=True, check=False
    )


def is_the_mistake(done: subprocess.CompletedProcess[str]) -> bool:
    return (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("otel-gpu: --output paper")


@pytest.mark.parametrize(
    "variables", [{}, {"PYTHONPATH": ""}, {"PYTHONSTARTUP": "json.py", "PYTHONINSPECT": ""}], ids=str
)
def test_the_command_imports_nothing_from_the_working_directory(tmp_path: Path, variables: Mapping[str, str]) -> None:
    traps = Traps(tmp_path)

    done = run([SCRIPT, *MISTAKE], traps.directory, **variables)

    assert is_the_mistake(done), done.stderr
    assert traps.fired == ""


def test_the_module_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    """Python itself puts that first for `-m`: a package `otel_gpu` there would be what was asked for."""
    traps = Traps(tmp_path, (*AT_START, *STANDARD, *LATER))

    done = run([sys.executable, "-m", "otel_gpu", *MISTAKE], traps.directory)

    assert is_the_mistake(done), done.stderr
    assert traps.fired == ""


@pytest.mark.parametrize("places", [":", ".", "..:"])
@pytest.mark.parametrize("command", [[SCRIPT], [sys.executable, "-m", "otel_gpu"]], ids=["script", "module"])
def test_relative_places_in_pythonpath_count_for_nothing(tmp_path: Path, places: str, command: list[str]) -> None:
    traps = Traps(tmp_path, LATER)

    done = run([*command, *MISTAKE], traps.directory, PYTHONPATH=places)

    assert is_the_mistake(done), done.stderr
    assert traps.fired == ""


def test_a_child_imports_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traps = Traps(tmp_path)
    monkeypatch.chdir(traps.directory)
    monkeypatch.setenv("PYTHONPATH", ":")
    monkeypatch.syspath_prepend("")

    with Parsers() as parsers:
        (shell,) = parsers.run(shapes, [RootedFile(-1, b"/bin/sh")], None)

    assert traps.fired == ""
    assert shell.is_elf


def test_what_is_said_to_a_child_is_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", ".", "some/where", "/an/absolute/place"])

    line = isolated.command("otel_gpu.cli", "run")

    assert line[-4:] == [isolated.__file__, "/an/absolute/place", "otel_gpu.cli", "run"]
    assert "-I" in line[1:-4]


class TestWhereThePackageLies:
    """The virtual environment's Python is an editable installation's; a base Python has none of ours."""

    base = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")
    packages = next(p for p in site.getsitepackages() if Path(p, "msgspec").is_dir())

    @pytest.mark.parametrize("options", [[], ["-I"], ["-W", "error", "-X", "dev"]], ids=str)
    def test_an_editable_installation(self, tmp_path: Path, options: list[str]) -> None:
        assert is_the_mistake(run([sys.executable, *options, "-m", "otel_gpu", *MISTAKE], tmp_path))

    def test_a_checkout_with_its_dependencies_in_pythonpath(self, tmp_path: Path) -> None:
        done = run([self.base, "-m", "otel_gpu", *MISTAKE], tmp_path, PYTHONPATH=f"{ROOT}:{self.packages}")

        assert is_the_mistake(done), done.stderr

    def test_an_installation_for_one_user(self, tmp_path: Path) -> None:
        user = tmp_path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        user.mkdir(parents=True)
        for part in [ROOT / "otel_gpu", *Path(self.packages).iterdir()]:
            if not part.name.startswith("__editable__"):
                (user / part.name).symlink_to(part)

        done = run([self.base, "-m", "otel_gpu", *MISTAKE], Path("/"), PYTHONUSERBASE=str(tmp_path))

        assert is_the_mistake(done), done.stderr

    def test_what_is_missing_is_said_in_one_line(self, tmp_path: Path) -> None:
        done = run([self.base, "-m", "otel_gpu", *MISTAKE], tmp_path, PYTHONPATH=str(ROOT))

        assert done.returncode == 1
        assert done.stderr.startswith("otel-gpu: the Python package ")
        assert done.stderr.count("\n") == 1

    def test_the_dependencies_of_an_installed_package_lie_beside_it(self, tmp_path: Path) -> None:
        """PYTHONPATH is without effect there, so a place that it names cannot come in."""
        installed = tmp_path / "venv"
        subprocess.run([self.base, "-m", "venv", "--without-pip", installed], check=True)
        packages = next((installed / "lib").glob("python*/site-packages"))
        (packages / "otel_gpu").symlink_to(ROOT / "otel_gpu")

        done = run([installed / "bin" / "python", "-m", "otel_gpu", *MISTAKE], tmp_path, PYTHONPATH=self.packages)

        assert "is missing; install it where otel-gpu is" in done.stderr
