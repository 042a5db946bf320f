"""Does `otel-gpu dump` say what each thread of a process does, whatever the process is and does?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import cpythons
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S

_PROGRAMS = Path(__file__).parents[1] / "programs"


def _dump(pid: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "otel_gpu", "dump", str(pid), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def _threads(pid: int) -> list[dict[str, Any]]:
    # What is read has to be waited for as long as a busy host takes.
    done = _dump(pid, "--json", "--timeout", "40")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["threads"]


def _functions(thread: dict[str, Any]) -> list[str]:
    return [frame["function"] for frame in thread["stack"]]


def _in(threads: list[dict[str, Any]], function: str) -> dict[str, Any]:
    (found,) = [t for t in threads if function in _functions(t)]
    return found


@contextmanager
def _running(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Iterator[int]:
    with subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.kill()


@pytest.fixture(scope="module")
def known_threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a C program whose threads each stand in a function of their own."""
    program = tmp_path_factory.mktemp("threads") / "known_threads"
    subprocess.run(["gcc", "-O1", "-g", "-o", program, _PROGRAMS / "known_threads.c", "-lpthread"], check=True)
    return program


def test_threads_of_a_c_program_each_have_their_stack_name_and_state(known_threads: Path) -> None:
    with _running([known_threads]) as pid:
        threads = _threads(pid)
        said = _dump(pid).stdout

    assert len(threads) == 4
    assert threads[0]["tid"] == pid
    assert _in(threads, "stands_in_a_lock")["name"] == "locked"
    for function, caller, state in (
        ("stands_in_a_lock", "locked", "blocked"),
        ("stands_in_a_sleep", "sleeps", "blocked"),
        ("runs_and_runs", "runs", ("running", "ready to run")),
    ):
        thread = _in(threads, function)
        functions = _functions(thread)
        assert functions[functions.index(function) + 1] == caller
        assert thread["state"] in state
        assert (thread["cuda_call"], thread["gil"]) == (None, None)
    assert "main" in _functions(threads[0])
    assert "\033" not in said
    assert "stands_in_a_lock (known_threads)" in said


_INTERPRETERS = sorted(
    (i for i in cpythons.interpreters() if not i.missing and len(i.command) == 1), key=lambda i: i.minor
)


@pytest.mark.parametrize("interpreter", {i.minor: i for i in _INTERPRETERS[:1] + _INTERPRETERS[-1:]}.values(), ids=str)
def test_threads_of_python_have_its_functions_in_their_place(interpreter: cpythons.Interpreter) -> None:
    with _running([*interpreter.command, _PROGRAMS / "known_threads.py"], dict(interpreter.environment)) as pid:
        threads = _threads(pid)

    for function in ("sleeps_in_python", "waits_for_a_lock", "computes"):
        thread = _in(threads, function)
        functions = _functions(thread)
        assert functions[functions.index(function) + 1] == "outermost"
        (frame,) = [f for f in thread["stack"] if f["function"] == function]
        assert frame["kind"] == "cpython"
        assert frame["file"].endswith("known_threads.py")
        assert frame["line"]
    # Whoever computes holds the GIL, and nobody who sleeps does.
    assert _in(threads, "sleeps_in_python")["gil"] is None
    assert _in(threads, "computes")["gil"] == "holds"


_COMPUTES_AFTER_A_FORK = """
import os, signal, sys, threading, time
child = os.fork()
if child:
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, 9))
    os.waitpid(child, 0)
    sys.exit()
def computes():
    while True:
        pass
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print(os.getpid(), flush=True)
computes()
"""


@pytest.mark.parametrize(
    "interpreter", {i.minor: i for i in cpythons.interpreters() if not i.missing}.values(), ids=str
)
def test_who_holds_the_gil_is_read_from_every_interpreter(interpreter: cpythons.Interpreter) -> None:
    """Also of the main thread of a child that was forked, whose number the interpreter may have from its parent."""
    command = [*interpreter.command, "-c", _COMPUTES_AFTER_A_FORK]
    environment = {**os.environ, **dict(interpreter.environment)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            threads = _threads(int(process.stdout.readline()))
        finally:
            process.terminate()

    assert [thread["gil"] for thread in threads] == ["holds", None]


def test_a_thread_in_a_call_of_the_driver_says_which() -> None:
    environment = {"LD_LIBRARY_PATH": ground.library_path(), "MOCKCUDA_STATE": "", "MOCKCUDA_COPY_GBPS": "0.000001"}
    with _running([sys.executable, _PROGRAMS / "known_threads.py", "--copies"], environment) as pid:
        thread = _in(_threads(pid), "copies_to_the_gpu")
        said = _dump(pid).stdout

    assert thread["cuda_call"] == "cuMemcpyHtoD_v2"
    assert thread["state"] == "blocked"
    assert "in cuMemcpyHtoD_v2): " in said


def test_a_stopped_process_is_shown_and_stays_stopped(known_threads: Path) -> None:
    with _running([known_threads]) as pid:
        os.kill(pid, signal.SIGSTOP)
        threads = _threads(pid)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    assert state == "T"
    assert {t["state"] for t in threads} == {"stopped"}
    assert _in(threads, "runs_and_runs")


def test_a_process_whose_memory_never_answers_holds_nobody_up() -> None:
    program = [sys.executable, _PROGRAMS / "stalled.py", "userfaultfd"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            process.stdout.readline()
            done = _dump(process.pid, "--timeout", "2")
        finally:
            process.kill()

    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("pid", (2**22 - 1, "ended"))
def test_of_a_process_that_is_gone_it_is_said(pid: int | str) -> None:
    if pid == "ended":
        process = subprocess.Popen(["true"])
        process.wait()
        pid = process.pid

    done = _dump(int(pid))

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "does not exist" in done.stderr


def _refused(pid: int) -> str:
    done = _dump(pid)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line


def test_of_a_zombie_its_parent_is_said() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        said = _refused(process.pid)
    finally:
        process.wait()

    assert "zombie" in said
    assert f"its parent, process {os.getpid()} (" in said


def test_of_a_thread_it_is_said_whose_it_is(known_threads: Path) -> None:
    with _running([known_threads]) as pid:
        tid = max(map(int, os.listdir(f"/proc/{pid}/task")))
        said = _refused(tid)

    assert f"{tid} is a thread of process {pid} (known_threads)" in said
    assert said.endswith(f"give {pid}")


def test_a_thread_of_the_kernel_is_not_waited_for() -> None:
    # Children of kthreadd, which is process 2 where the host's processes are seen.
    if not Path("/proc/2/comm").exists() or Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("no thread of the kernel is seen from here: this is a private pid namespace")

    assert "2 is a thread of the kernel ([kthreadd])" in _refused(2)


def test_a_number_of_a_container_leads_to_the_one_of_the_host() -> None:
    number = next(n for n in range(1000, 30_000) if not Path(f"/proc/{n}").exists())
    inner = f"echo {number - 1} > /proc/sys/kernel/ns_last_pid; sh -c 'echo $$; exec sleep 1000' & wait"
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", inner]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            within = int(process.stdout.readline())
            said = _refused(within)
        finally:
            process.kill()

    assert f"in a container's pid namespace {within} is what is here process" in said
    assert said.endswith("give that number")
