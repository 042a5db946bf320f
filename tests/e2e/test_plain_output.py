"""Is what the command says legible, and its exit status right, whoever reads it: a pipe that closes, a small terminal without UTF-8?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from otel_gpu.cli import VERBS
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.terminal import Terminal

_PLAIN = {"LC_ALL": "C", "LANG": "", "PYTHONUTF8": "", "PYTHONCOERCECLOCALE": "", "NO_COLOR": "1"}
_COLOUR = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7])[;m]")
_COMMAND = (sys.executable, "-m", "otel_gpu")


@pytest.fixture(scope="module")
def pid() -> Iterator[str]:
    """Return a process that sleeps, whose name is no word of ASCII."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()", "é\x1b[31m"], stdin=-1) as process:
        yield str(process.pid)
        process.kill()


_READ_BY_PIPES = (
    ("--help",),
    ("doctor",),
    ("doctor", "--json"),
    ("dump", "PID"),
    ("dump", "PID", "--json"),
    ("inspect", "PID"),
    ("record", "--type", "offcpu", "--duration", "1", "-o", "-", "--format", "folded", "PID"),
    ("run", "--output", "console", "--duration", "1"),
    ("top", "--once"),
    ("top", "--json", "--duration", "30"),
    ("completion", "zsh"),
)


@pytest.mark.parametrize("words", _READ_BY_PIPES, ids=" ".join)
def test_a_pipe_that_nobody_reads_is_no_failure_to_be_told_of(pid: str, words: Sequence[str]) -> None:
    command = [*_COMMAND, *(pid if word == "PID" else word for word in words)]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    finally:
        os.close(writer)

    assert done.returncode in (0, 1)
    assert not re.search("Traceback|Exception|internal error", done.stderr), done.stderr


@pytest.mark.parametrize("words", [(verb, "--help") for verb in VERBS] + [("doctor",), ("dump", "PID")], ids=" ".join)
def test_a_small_terminal_without_utf8_and_colours_gets_ascii(pid: str, words: Sequence[str]) -> None:
    command = [*_COMMAND, *(pid if word == "PID" else word for word in words)]
    with Terminal(command, size=(40, 20), environment=_PLAIN) as terminal:
        assert terminal.end() in (0, 1)

    assert terminal.raw.isascii()
    assert not _COLOUR.search(terminal.raw)
    assert "Traceback" not in terminal.text
    if words == ("dump", "PID"):
        # Foreign text says nothing to the terminal.
        assert r"\xe9" in terminal.text
        assert b"\x1b[31m" not in terminal.raw


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_recording_at_a_small_terminal(pid: str, tmp_path: Path, term: str) -> None:
    command = [*_COMMAND, "record", "--type", "offcpu", "--duration", "1", "-o", str(tmp_path / "a.folded"), pid]
    with Terminal(command, size=(40, 20), environment={**_PLAIN, "TERM": term}) as terminal:
        assert terminal.end() == 0

    assert terminal.raw.isascii()
    assert not _COLOUR.search(terminal.raw)
    assert f"recording offcpu of process {pid} for 1 s" in terminal.text.replace("\n", "")
    assert "100.0%  " in terminal.text


_SHORT = """
import ctypes, sys
sys.path.insert(0, {programs!r})
from ctypes_calls import IMAGE, Driver
driver, one = Driver(), ctypes.c_uint(1)
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
driver.cuInit(0)
driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
driver.cuModuleLoadData(ctypes.byref(module), IMAGE)
driver.cuModuleGetFunction(ctypes.byref(function), module, b"attend")
for _ in range(50):
    driver.cuLaunchKernel(function, one, one, one, one, one, one, ctypes.c_uint(0), None, None, None)
sys.exit(3)
"""


def test_a_command_that_is_over_at_once_has_its_totals_and_its_own_exit_status(tmp_path: Path) -> None:
    script = _SHORT.format(programs=str(Path(__file__).parents[1] / "programs"))
    environment = {**os.environ, "LD_LIBRARY_PATH": ground.library_path(), "MOCKCUDA_STATE": ""}
    out = tmp_path / "a.folded"
    command = [*_COMMAND, "record", "-o", str(out), "--", sys.executable, "-c", script]

    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)

    assert done.returncode == 3, done.stderr
    assert sum(int(line.rpartition(" ")[2]) for line in out.read_text().splitlines()) == 50
    assert "kernel launches, 50 count:" in done.stderr
    if "50 of them cut short" in done.stderr:
        assert "a longer run shows its stacks" in done.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_asks_nothing_of_a_gpu_is_over_at_once(tmp_path: Path, code: int) -> None:
    command = [
        *_COMMAND,
        "record",
        "-o",
        str(tmp_path / "a.html"),
        "--",
        sys.executable,
        "-c",
        f"raise SystemExit({code})",
    ]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("it has ended; see that it uses a GPU")
    assert not (tmp_path / "a.html").exists()


def test_tables_are_as_wide_as_a_terminal_that_cannot_be_drawn_on(tmp_path: Path) -> None:
    storm = [ground.part("programs") / "launch_storm", "--gate", "--threads", "2", "--launches", "3000"]
    with Program(storm, tmp_path) as program:
        program.ready()
        command = [*_COMMAND, "top", "--interval", "200ms", "--pid", str(program.pid)]
        with Terminal(command, size=(40, 20), environment={**_PLAIN, "TERM": "dumb"}) as terminal:
            terminal.until(lambda text: "no GPU process" in text or "processes" in text)
            program.run_phase()
            shown = terminal.until(lambda text: re.search(rf"^ +{program.pid} .*\n\n", text, re.MULTILINE))

    assert shown.isascii()
    tables = shown.partition("processes\n")[2].splitlines()
    assert [line for line in tables if len(line) > 40] == []
