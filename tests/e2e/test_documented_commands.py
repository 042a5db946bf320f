"""Every command that README and docs/ show does what it says: it is run here, or by the test that is named for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import commands
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program
from tests.unit.otlp_sinks import Sink, serve_grpc

_SHOWN = {re.sub(r"^sudo ", "", c.line): c.document for c in commands()}
_OURS = [line for line in _SHOWN if line.startswith("otel-gpu ")]

RUN_ELSEWHERE = {
    "make demo": "tests/e2e/test_demo.py runs the command that it runs",
    "make wheel": "scripts/check_wheel.py, at the end of it",
    '/opt/otel-gpu/bin/pip install "$(echo dist/otel_gpu-*.whl)[view]"': "tests/image/quick_start.py; scripts/check_wheel.py",
    "ln -sf /opt/otel-gpu/bin/otel-gpu /usr/local/bin/": "it changes the host of whoever runs the tests",
    "python3 -m venv /opt/otel-gpu": "scripts/check_wheel.py makes such an environment",
    '/opt/otel-gpu/bin/pip install "$(echo otel_gpu-*.whl)[view]"': "scripts/check_wheel.py",
    "/opt/otel-gpu/bin/otel-gpu doctor": "here, without the directory",
    "pip install 'otel-gpu[view]'": "tests/unit/test_view_server.py, where the extra is installed; pyproject.toml declares it",
    "cp deploy/systemd/otel-gpu.service /etc/systemd/system/": "tests/e2e/test_service.py runs the service as its unit says",
    "systemctl enable --now otel-gpu": "tests/e2e/test_service.py",
    "make deb": "tests/image/package.py",
    "apt install ./dist/otel-gpu_*.deb": "tests/image/package.py",
}
"""What is not ours to type on the machine of whoever runs the tests, and what shows it instead."""

_TRAIN = "import os; os.execv({0!r}, [{0!r}, '--launches', '3000', '--memory', '50'])"
"""A script that works for a moment."""
_A_MOMENT = "--duration 1s"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Return a program that launches until it is killed."""
    endless = ("--phases", "1000000", "--launches", "500", "--memory", "5", "--pause", "0.01")
    storm = [ground.part("programs") / "launch_storm", *endless]
    with Program(storm, tmp_path_factory.mktemp("program")) as running:
        running.ready()
        yield running


@pytest.fixture(scope="module")
def backend() -> Iterator[Sink]:
    sink = Sink()
    server = serve_grpc(sink)
    yield sink
    server.stop(None).wait()


def test_every_other_command_is_shown_to_work_somewhere() -> None:
    assert set(_SHOWN) - set(_OURS) == set(RUN_ELSEWHERE)


@pytest.mark.parametrize("line", _OURS)
def test_a_documented_command_works(line: str, program: Program, backend: Sink, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_TRAIN.format(str(ground.part("programs") / "launch_storm")))
    if "stragglers" in line:
        # What it reads is what `--output file:out` writes.
        _type("otel-gpu run --pid 4711 --output file:out", program, backend, tmp_path)

    done = _type(line, program, backend, tmp_path)

    assert done.returncode == 0, f"{_SHOWN[line]}: {line}: {done.stderr}"
    assert "Traceback" not in done.stderr


def _type(line: str, program: Program, backend: Sink, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a line as a reader would, for a moment, on our own program."""
    verb = line.split()[1]
    line = re.sub(r"\b4711\b", str(program.pid), line)
    line = re.sub(r"--duration \S+", _A_MOMENT, line)
    if verb in ("run", "record", "top") and "--duration" not in line and " -- " not in line:
        line += f" {_A_MOMENT}"
    if verb in ("run", "top") and "--pid" not in line:
        # Programs of others on this host are not a test's to look at.
        line += f" --pid {program.pid}"
    if verb == "view":
        # It serves until it is told to stop; its usual ports may be somebody's.
        line = f"timeout --foreground --preserve-status -s INT 5 {line} --port 0 --grpc-port 0"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=directory,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": ground.library_path(),
            "MOCKCUDA_STATE": "",
            "OTEL_EXPORTER_OTLP_ENDPOINT": backend.url,
            "TERM": "dumb",
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
