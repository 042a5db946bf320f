"""Workers without a name have that of the nearest ancestor that has one, if it is as near as it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_gpu.discovery.ancestors import MAX_GENERATIONS, find_ancestors
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.sandbox.parsers import Parsers

_MODULES = ("otel_gpu.discovery.process_info_work", "otel_gpu.discovery.process_context_work")
_PROGRAMS = Path(__file__).parent.parent / "programs"
_WAITS = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
_WORKERS = """
import multiprocessing, os, sys, time

def work():
    print(os.getpid(), flush=True)
    time.sleep(3600)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    context.Process(target=work, daemon=True).start()
    sys.stdin.read()
"""
_RUNS = """
import subprocess, sys
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    with Parsers(modules=_MODULES) as running:
        yield running


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    for name, text in (("train.py", _WORKERS), ("launch.py", _RUNS), ("own.py", _WAITS)):
        (tmp_path / name).write_text(text)
    return tmp_path


@contextmanager
def _worker(*command: str | Path, **environment: str) -> Iterator[int]:
    """Run a command of which a process says its number, and yield that."""
    environment = {"PATH": os.environ["PATH"], **environment}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        if "cannot" in line:
            process.communicate()
            pytest.skip(f"this kernel does not let a program do that: {line}")
        assert line, command
        yield int(line)
        process.communicate()


def _name(parsers: Parsers, pid: int) -> object:
    table = ProcessTable({}, parsers)
    try:
        return dict(table.observe(pid).resource.attributes)["service.name"]
    finally:
        table.close()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_has_the_name_of_its_launcher(method: str, parsers: Parsers, scripts: Path) -> None:
    with _worker(sys.executable, scripts / "train.py", method) as worker:
        assert _name(parsers, worker) == "train"


def test_a_launcher_is_named_by_its_variables_first(parsers: Parsers, scripts: Path) -> None:
    clean = ("env", "-u", "OTEL_SERVICE_NAME", sys.executable, "-c", _WAITS)
    with _worker(sys.executable, scripts / "launch.py", *clean, OTEL_SERVICE_NAME="team-a") as worker:
        assert _name(parsers, worker) == "team-a"


@pytest.mark.parametrize(
    ("words", "variables", "name"),
    [
        (("own.py",), (), "own"),
        (("-c", _WAITS), ("OTEL_SERVICE_NAME=mine",), "mine"),
        (("-c", _WAITS), ("OTEL_RESOURCE_ATTRIBUTES=service.name=mine",), "mine"),
    ],
)
def test_a_worker_that_has_a_name_keeps_it(
    words: tuple[str, ...], variables: tuple[str, ...], name: str, parsers: Parsers, scripts: Path
) -> None:
    words = tuple(str(scripts / word) if word.endswith(".py") else word for word in words)
    command = ("env", *variables, sys.executable, *words)
    with _worker(sys.executable, scripts / "launch.py", *command) as worker:
        assert _name(parsers, worker) == name


def test_the_agent_names_nothing_that_it_has_started(parsers: Parsers) -> None:
    with _worker(sys.executable, "-c", _WAITS) as worker:
        assert _parent(worker) == os.getpid()
        assert _name(parsers, worker) == Path(os.path.realpath(sys.executable)).name


def test_ancestors_are_few(scripts: Path) -> None:
    launch = (sys.executable, scripts / "launch.py")
    with _worker(*launch * (MAX_GENERATIONS + 2), sys.executable, "-c", _WAITS) as worker:
        assert len(find_ancestors(worker)) == MAX_GENERATIONS


_AS_ANOTHER = "import os; os.setgid(65534); os.setuid(65534); " + _WAITS
_AS_ANOTHER_FOR_NOW = "import os; os.setegid(65534); os.seteuid(65534); " + _WAITS


@pytest.mark.root
@pytest.mark.parametrize("code", [_AS_ANOTHER, _AS_ANOTHER_FOR_NOW], ids=["real", "effective"])
def test_an_ancestor_of_another_user_names_nothing(code: str, parsers: Parsers, scripts: Path) -> None:
    with _worker(sys.executable, scripts / "launch.py", sys.executable, "-c", code) as worker:
        assert _name(parsers, worker) == Path(os.path.realpath(sys.executable)).name


@pytest.mark.root
def test_an_ancestor_outside_of_a_pid_namespace_names_nothing(parsers: Parsers, scripts: Path) -> None:
    inner = ("unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", "import time; time.sleep(3600)")
    launch = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); sys.stdin.read(); p.kill()"
    (scripts / "outer.py").write_text(launch)
    with _worker(sys.executable, scripts / "outer.py", *inner) as unshare:
        children = Path(f"/proc/{unshare}/task/{unshare}/children")
        while not (inside := children.read_text().split()) or "python" not in os.readlink(f"/proc/{inside[0]}/exe"):
            pass
        assert find_ancestors(int(inside[0])) == []


def test_an_ancestor_that_does_not_answer_names_nothing_and_hides_those_behind(parsers: Parsers, scripts: Path) -> None:
    hidden = (sys.executable, _PROGRAMS / "unanswered_start.py", scripts / "launch.py")
    with _worker(sys.executable, scripts / "launch.py", *hidden, sys.executable, "-c", _WAITS) as worker:
        table = ProcessTable({}, parsers)
        resource = dict(table.observe(worker).resource.attributes)
        table.close()
    # What the worker was started with is known all the same.
    assert resource["service.name"] == Path(os.path.realpath(sys.executable)).name
    assert resource["process.command"] == sys.executable


def test_a_launcher_that_has_ended_names_nothing(parsers: Parsers, scripts: Path) -> None:
    (scripts / "gone.py").write_text(
        "import os, subprocess, sys\nsubprocess.Popen(sys.argv[1:], stdin=0, start_new_session=True)\n"
    )
    with _worker(sys.executable, scripts / "gone.py", sys.executable, "-c", _WAITS) as worker:
        while "gone" in Path(f"/proc/{_parent(worker)}/cmdline").read_text():
            pass
        assert _name(parsers, worker) == Path(os.path.realpath(sys.executable)).name


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
