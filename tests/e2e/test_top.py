"""Does `otel-gpu top` show what programs do, exactly, wherever it is asked from and whatever its terminal is?"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyte
import pytest

from tests.e2e import ground
from tests.e2e.collector import free_ports
from tests.e2e.processes import DEADLINE_S, Agent, Program, _Child
from tests.e2e.truth import Truth

_ROOT = Path(__file__).parent.parent.parent
_TOP = [sys.executable, "-m", "otel_gpu", "top"]
_LAUNCHES = 4_000
_COLOR = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


def _environment(**more: str) -> dict[str, str]:
    clean = {name: "" for name in os.environ if name.startswith(("OTEL_", "LC_"))}
    return {**os.environ, **clean, "PYTHONPATH": str(_ROOT), "LANG": "C.UTF-8", "NO_COLOR": "", **more}


class Top(_Child):
    """`otel-gpu top` without a terminal."""

    def __init__(self, arguments: list[str], directory: Path) -> None:
        super().__init__([*_TOP, *arguments], _environment(), directory)

    def object(self) -> dict[str, object] | None:
        """Return the next object that it prints; None at the end."""
        line = self._lines.get(timeout=DEADLINE_S)
        return None if line is None else json.loads(line)

    def last(self) -> dict[str, object]:
        """Return the last object that it prints by itself."""
        found = None
        while (one := self.object()) is not None:
            found = one
        assert found is not None, self.error_text
        return found


def _calls(directory: Path, launches: int = _LAUNCHES, **environment: str) -> Program:
    command = [sys.executable, ground.PROGRAMS / "ctypes_calls.py", "--phases", "2", "--launches", str(launches)]
    return Program(command, directory, environment)


def _end(program: Program) -> Truth:
    """Let it do its last phase."""
    program.ready()
    program.run_phase()
    return program.finish()


def _assert_is(process: dict[str, object], truth: Truth) -> None:
    kernels = process["kernels"]
    # One of storm's names is mangled.
    assert sorted(k["launches"] for k in kernels if k["launches"]) == sorted(truth.launches.values())
    assert {k["name"] for k in kernels if k["launches"]} >= {n for n in truth.launches if not n.startswith("_Z")}
    assert process["launches"] == sum(truth.launches.values())
    assert process["graph_launches"] == truth.graph_launches
    assert process["kernels_in_graphs"] == truth.graph_kernels
    copies = [c for c in process["copies"] if not c["in_graphs"]]
    assert (sum(c["count"] for c in copies), sum(c["bytes"] for c in copies)) == (truth.copied.count, truth.copied.sum)
    assert sum(e["count"] for e in process["errors"]) == sum(truth.errors.values())


def test_the_last_object_of_a_process_is_all_that_it_did(tmp_path: Path) -> None:
    storm = [ground.part("programs") / "launch_storm", "--gate", "--threads", "2", "--launches", "50000"]
    with Program([*storm, "--memory", "4", "--graphs", "7", "--errors", "3", "--phases", "2"], tmp_path) as program:
        program.ready()
        with Top(["--json", "--interval", "300ms", "--pid", str(program.pid)], tmp_path) as top:
            first = top.object()
            program.run_phase()
            one: dict[str, object] | None = None
            # What has ended before anybody could look at its kernels has none of their names.
            while not one or not any(k["launches"] for p in one["processes"] for k in p["kernels"]):
                one = top.object()
                assert one is not None, top.error_text
            program.ready()
            program.run_phase()
            truth = program.finish()
            last = top.last()
            assert top.wait() == 0

    assert first is not None
    assert 0 < first["seconds"] < DEADLINE_S
    [process] = last["processes"]
    assert process["pid"] == truth.pid
    _assert_is(process, truth)
    assert set(process["busy"]) == {"lower", "upper"}
    assert process["memory"].get("device", 0) == truth.live["device"]
    assert [w["count"] > 0 for w in process["waits"]]
    assert process["requests"] is None
    assert process["lost"] == {}


def test_rates_are_those_of_the_interval(tmp_path: Path) -> None:
    with _calls(tmp_path) as program:
        program.ready()
        with Top(["--json", "--interval", "300ms", "--pid", str(program.pid)], tmp_path) as top:
            top.object()
            program.run_phase()
            found, done = [], 0
            while done < _LAUNCHES + _LAUNCHES // 4:
                one = top.object()
                assert one is not None, top.error_text
                found.append(one)
                done = sum(p["launches"] for p in one["processes"])
            top.process.send_signal(signal.SIGTERM)
            assert top.wait() == 0
        _end(program)

    summed = sum(p["launches_per_second"] * one["seconds"] for one in found for p in one["processes"])
    assert summed == pytest.approx(_LAUNCHES + _LAUNCHES // 4)


@pytest.mark.parametrize("launcher", [(), ("sh", "-c", '"$@"; exit $?', "sh")], ids=["itself", "by a launcher"])
def test_requests_have_their_times_and_their_launches(launcher: tuple[str, ...], tmp_path: Path) -> None:
    server = [*launcher, sys.executable, ground.PROGRAMS / "servers" / "threads.py"]
    with Program(server, tmp_path) as program:
        port = program.event("ready")["port"]
        with Top(["--json", "--traces", "--interval", "300ms", "--pid", str(program.pid)], tmp_path) as top:
            top.object()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
            asked, requests, found = 0, None, []
            while requests is None or requests["count"] < 20:
                asked += 1
                connection.request("GET", f"/work/{asked}/3/plain")
                connection.getresponse().read()
                if asked % 10 == 0:
                    one = top.object()
                    assert one is not None, top.error_text
                    found = one["processes"]
                    requests = next((p["requests"] for p in found), None)
            connection.close()
            top.process.send_signal(signal.SIGTERM)
            top.wait()
        os.kill(found[0]["pid"], signal.SIGTERM)

    assert (found[0]["pid"] == program.pid) == (not launcher)
    assert requests["launches_per_request"] == pytest.approx(3)
    assert 0 < requests["p50"] <= requests["p99"] < DEADLINE_S


def test_an_agent_that_runs_already_says_the_same(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = tmp_path / "agent.yaml"
    config.write_text(f"exporters: {{prometheus: {{endpoint: 'localhost:{port}'}}}}")
    with _calls(tmp_path, OTEL_SERVICE_NAME="served") as program:
        program.ready()
        with Agent(["--config", config, "--pid", str(program.pid)], tmp_path) as agent:
            agent.wait_attached()
            program.run_phase()
            with Top(["--from", f"localhost:{port}", "--json", "--interval", "100ms"], tmp_path) as top:
                found: dict[str, object] = {}
                while not found or found["launches"] < _LAUNCHES + _LAUNCHES // 4 or not found["waits"]:
                    one = top.object()
                    assert one is not None, top.error_text
                    found = next(iter(one["processes"]), {})
            plain = subprocess.run(
                [*_TOP, "--from", f"http://localhost:{port}/metrics", "--once"],
                capture_output=True, text=True, check=True, timeout=DEADLINE_S, env=_environment(),
            ).stdout  # fmt: skip
            truth = program.truth_now()
            agent.stop()
        _end(program)

    _assert_is(found, truth)
    assert (found["pid"], found["service"]) == (program.pid, "served")
    assert "embed_tokens" in plain
    assert re.search(rf"{program.pid}\s+served", plain)


def test_who_is_asked_and_does_not_answer_is_one_line(tmp_path: Path) -> None:
    [port] = free_ports(1)

    done = subprocess.run(
        [*_TOP, "--from", f"localhost:{port}", "--once"],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=_environment(),
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "nobody answers there" in done.stderr


class Terminal:
    """A terminal of some size with `otel-gpu top` in it."""

    def __init__(self, arguments: list[str], columns: int, rows: int, environment: Mapping[str, str]) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        # What a shell said of another terminal, or of this one before it changed, is not its size.
        environment = {**environment, "COLUMNS": "100", "LINES": "50"}
        self.process = subprocess.Popen(
            [*_TOP, *arguments],
            stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(slave)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def until(self, condition: Callable[[str], object]) -> str:
        """Read until the screen is so, and return what stands on it."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition(self.text):
            assert time.monotonic() < deadline, self.text
            self._read()
        return self.text

    def end(self) -> int:
        self.press("q")
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read()
        return self.process.returncode

    def _read(self) -> None:
        if select.select([self._master], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                data = os.read(self._master, 65536)
                self.raw += data
                self._stream.feed(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def _terminal(arguments: list[str], columns: int, rows: int, **environment: str) -> Iterator[Terminal]:
    with contextlib.closing(
        Terminal(arguments, columns, rows, _environment(TERM="xterm-256color", **environment))
    ) as terminal:
        yield terminal


def test_a_terminal_shows_processes_kernels_and_what_keys_ask_for(tmp_path: Path) -> None:
    with (
        _calls(tmp_path, OTEL_SERVICE_NAME="trainer") as program,
        _terminal(["--interval", "200ms", "--pid", str(program.pid)], 120, 24) as terminal,
    ):
        program.ready()
        terminal.until(lambda text: "no GPU process" in text or "trainer" in text)
        program.run_phase()
        terminal.until(lambda text: re.search(rf"{program.pid}\s+trainer .*\s5,000$", text, re.MULTILINE))
        terminal.press("\r")
        shown = terminal.until(lambda text: "[kernels]" in text and "embed_tokens" in text)
        assert re.search(r"embed_tokens .*\s4,000$", shown, re.MULTILINE)
        assert re.search(r"attend .*\s1,000$", shown, re.MULTILINE)
        terminal.press("/att")
        terminal.until(lambda text: "attend" in text and "embed_tokens" not in text)
        terminal.press("\x1b")
        terminal.until(lambda text: "embed_tokens" in text)
        terminal.press("\t")
        shown = terminal.until(lambda text: "[copies]" in text)
        assert re.search(r"host to GPU .*\s12.1 KiB$", shown, re.MULTILINE)
        terminal.press("1ss")
        terminal.press("?")
        terminal.until(lambda text: "look into the process" in text)
        terminal.press("x")
        terminal.until(lambda text: "[processes]" in text)
        terminal.resize(40, 10)
        terminal.until(lambda text: "[processes] 1 of 8" in text)
        assert all(len(line) <= 40 for line in terminal.text.split("\n"))
        assert terminal.end() == 0
        assert b"\x1b[?1049l" in terminal.raw
        _end(program)


def test_forty_columns_without_color_and_without_utf8_are_legible(tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07\n\u202e\u05d0\u00e9[red]" + "A" * 400
    with (
        _calls(tmp_path, OTEL_SERVICE_NAME=hostile) as program,
        _terminal(["--interval", "200ms", "--pid", str(program.pid)], 40, 12, LANG="C", NO_COLOR="1") as terminal,
    ):
        program.ready()
        terminal.until(lambda text: "no GPU process" in text or str(program.pid) in text)
        program.run_phase()
        shown = terminal.until(lambda text: re.search(rf"{program.pid}\s+\\x1b", text))
        assert re.search(r"pid +process +kernels/s", shown)
        terminal.press("2")
        terminal.until(lambda text: "embed_tokens" in text)
        assert terminal.end() == 0
        _end(program)

    assert terminal.raw.isascii()
    assert b"\x1b]0" not in terminal.raw
    assert b"\x07" not in terminal.raw
    assert _COLOR.search(terminal.raw) is None


def test_a_pipe_gets_plain_tables(tmp_path: Path) -> None:
    with _calls(tmp_path, OTEL_SERVICE_NAME="\x1b[2Jtrainer") as program:
        program.ready()
        with Top(["--interval", "300ms", "--pid", str(program.pid)], tmp_path) as top:
            lines = [str(top._lines.get(timeout=DEADLINE_S))]
            program.run_phase()
            while not any("attend" in line for line in lines):
                line = top._lines.get(timeout=DEADLINE_S)
                assert line is not None, top.error_text
                lines.append(line)
            _end(program)
            assert top.wait() == 0

    assert all(line.rstrip("\n").isprintable() for line in lines)
    assert any("\\x1b[2Jtrainer" in line for line in lines)
