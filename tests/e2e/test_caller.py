"""Tests of `sudo otel-gpu record -- COMMAND`: the command and the file are the caller's."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.exporters.recordings.reading import read_profiles
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S
from tests.e2e.truth import Truth

_USER = next(user for user in reversed(pwd.getpwall()) if user.pw_uid)
_CALLS = {
    "sudo": {"SUDO_UID": str(_USER.pw_uid), "SUDO_GID": str(_USER.pw_gid), "SUDO_USER": _USER.pw_name},
    "pkexec": {"PKEXEC_UID": str(_USER.pw_uid)},
    "doas": {"DOAS_USER": _USER.pw_name},
}
_SAYS = 'id -u; id -g; id -G | tr " " "\\n" | sort -n | tr "\\n" " "; echo; echo "$HOME $USER $LOGNAME $SHELL ${SUDO_UID:-none}"'


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Return a directory of the caller's, to which the caller has a way: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="otel-gpu-caller-") as directory:
        os.chown(directory, _USER.pw_uid, _USER.pw_gid)
        yield Path(directory)


def _open_to_all(directory: Path) -> tuple[Path, Path]:
    """Copy a program and the mock driver to where every user has a way, and return the program and the driver's directory."""
    storm = Path(shutil.copy(ground.part("programs") / "launch_storm", directory))
    driver = ground.own_driver(directory / "driver")
    for path in (storm, driver, driver / "libcuda.so.1"):
        path.chmod(0o755)
    return storm, driver


def _record(directory: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ground.library_path(),
        "MOCKCUDA_TRUTH": str(directory / "truth.json"),
        "MOCKCUDA_STATE": "",
        **variables,
    }
    command = [sys.executable, "-m", "otel_gpu", "record", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.mark.parametrize("call", _CALLS)
def test_a_command_runs_as_the_caller(call: str, open_directory: Path) -> None:
    out = open_directory / "a.folded"
    words = ("--type", "cpu", "-o", str(out), "--", "sh", "-c", _SAYS)

    done = _record(open_directory, *words, **_CALLS[call])

    groups = " ".join(map(str, sorted(os.getgrouplist(_USER.pw_name, _USER.pw_gid))))
    variables = f"{_USER.pw_dir} {_USER.pw_name} {_USER.pw_name} {_USER.pw_shell} none"
    said = [line.strip() for line in done.stdout.splitlines()]
    assert said == [str(_USER.pw_uid), str(_USER.pw_gid), groups, variables], done.stderr


@pytest.mark.parametrize("words", [["--as-root"], []], ids=["as root", "without a caller"])
def test_a_command_runs_as_root_where_root_called_or_is_asked_for(words: list[str], open_directory: Path) -> None:
    variables = _CALLS["sudo"] if words else {}

    done = _record(open_directory, *words, "-o", "-", "--", "sh", "-c", "id -u >&2", **variables)

    assert "0" in done.stderr.splitlines(), done.stderr


def test_the_work_of_a_callers_command_is_counted_and_its_file_is_the_callers(open_directory: Path) -> None:
    storm, driver = _open_to_all(open_directory)
    out = open_directory / "a.folded"
    words = ("--type", "launch,alloc", "-o", str(out), "--", str(storm), "--threads", "2", "--memory", "50")

    done = _record(open_directory, *words, LD_LIBRARY_PATH=str(driver), **_CALLS["sudo"])

    assert done.returncode == 0, done.stderr
    truth = Truth.read(open_directory / "truth.json")
    assert (open_directory / "truth.json").stat().st_uid == _USER.pw_uid
    files = {out: truth.launches.total(), out.with_name("a.gpu_alloc_space.folded"): truth.allocated.total()}
    for path, total in files.items():
        (profile,) = read_profiles(path)
        assert profile.total == total
        assert (path.stat().st_uid, path.stat().st_gid) == (_USER.pw_uid, _USER.pw_gid)


def test_a_file_in_roots_directory_stays_roots(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    storm = ground.part("programs") / "launch_storm"
    out = tmp_path / "a.folded"

    done = _record(tmp_path, "--as-root", "-o", str(out), "--", str(storm), **_CALLS["sudo"])

    assert done.returncode == 0, done.stderr
    assert out.stat().st_uid == 0


def test_a_caller_that_is_unknown_is_said(tmp_path: Path) -> None:
    done = _record(tmp_path, "-o", "-", "--", "touch", str(tmp_path / "a"), SUDO_UID="3999999999")

    assert done.returncode == 2
    assert "SUDO_UID is 3999999999, and this host knows no such user" in done.stderr
    assert not (tmp_path / "a").exists()
