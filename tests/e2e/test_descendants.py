"""A launcher and its tree: each process of it is counted exactly, under its own name, and no other program is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_gpu.exporters.recordings.reading import read_profiles
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.truth import Truth

_TREE, _LAUNCHER, _PROCESSES = 1051, 101, 9
_LAUNCHES = "gpu.cuda.kernel.launch.calls"


@contextmanager
def _strangers(directory: Path) -> Iterator[None]:
    """Have programs that are none of the tree launch by the same driver all the while."""
    (directory / "others").mkdir()
    storm = ground.part("programs") / "launch_storm"
    loop = f"while {storm} --threads 1 --launches 50 >&2; do touch ran; sleep 0.1; done"
    with Program(["sh", "-c", loop], directory / "others") as strangers:
        yield
        assert strangers.process.poll() is None
        assert (directory / "others" / "ran").exists()


def _tree() -> list[str | Path]:
    return [sys.executable, ground.PROGRAMS / "tree.py", ground.part("programs") / "launch_storm"]


@contextmanager
def _launcher(directory: Path) -> Iterator[Program]:
    with _strangers(directory), Program(_tree(), directory) as launcher:
        launcher.ready()
        yield launcher


def _truths(directory: Path) -> dict[int, int]:
    """Return how often each process of the tree launched."""
    truths = map(Truth.read, directory.glob("truth-*.json"))
    return {truth.pid: truth.launches.total() for truth in truths if truth.launches}


def _exported(directory: Path) -> dict[int, int]:
    """Return how often each process launched, as the agent exported it."""
    found: Counter[int] = Counter()
    for sample in read_metrics(directory).named(_LAUNCHES).samples:
        found[sample.resource["process.pid"]] += int(sample.value)
    return dict(found)


def _recorded(out: Path) -> dict[int, int]:
    """Return how often each process launched, by the resources of a recording or the roots of its stacks."""
    found: Counter[int] = Counter()
    if out.suffix == ".folded":
        for line in out.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            found[_pid(stack.split(";")[0])] += int(count)
    else:
        for profile in read_profiles(out):
            pid = dict(profile.resource.attributes).get("process.pid")
            for sample in profile.samples:
                found[pid or _pid(dict(sample.attributes)["process"])] += sample.value
    return dict(found)


def _pid(root: str) -> int:
    return int(re.search(r"\((\d+)\)", root)[1])


@pytest.mark.parametrize("words", [(), ("--no-children",)], ids=["all", "no-children"])
def test_a_launcher_that_runs_is_observed_with_its_tree(words: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with _launcher(tmp_path) as launcher:
        arguments = ["--pid", str(launcher.pid), "--output", f"file:{out}", *words]
        with Agent(arguments, tmp_path, {"LD_LIBRARY_PATH": ground.library_path()}) as agent:
            agent.wait_attached()
            launcher.go()
            launcher.wait()
            # It ends by itself: with the last of the processes that it observes.
            assert agent.wait() == 0, agent.error_text

    truths = _truths(tmp_path)
    assert (sum(truths.values()), len(truths), truths[launcher.pid]) == (_TREE, _PROCESSES, _LAUNCHER)
    assert _exported(out) == ({launcher.pid: _LAUNCHER} if words else truths)
    # When the agent came only a child had mapped the driver.
    assert ("has mapped no library" in agent.error_text) == bool(words)


@pytest.mark.parametrize("words", [(), ("--no-children",)], ids=["all", "no-children"])
def test_a_launcher_that_runs_is_recorded_with_its_tree(words: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / ("a.otlp.json" if words else "a.folded")
    with _launcher(tmp_path) as launcher:
        command = [sys.executable, "-m", "otel_gpu", "record", "--pid", str(launcher.pid), "--duration", "3600"]
        environment = {**os.environ, "LD_LIBRARY_PATH": ground.library_path()}
        with subprocess.Popen(
            [*command, "-o", out, *words], env=environment, stderr=subprocess.PIPE, text=True
        ) as recording:
            said = next(line for line in recording.stderr if line.startswith("recording "))
            launcher.go()
            launcher.wait()
            said += recording.communicate(timeout=DEADLINE_S)[1]

    assert recording.returncode == 0, said
    assert said.startswith(f"recording launch of process {launcher.pid} for 3600 s\n")
    truths = _truths(tmp_path)
    total = _LAUNCHER if words else _TREE
    assert (sum(truths.values()), truths[launcher.pid]) == (_TREE, _LAUNCHER)
    assert _recorded(out) == ({launcher.pid: _LAUNCHER} if words else truths)
    assert f"kernel launches, {total:,} count:" in said
    assert "see that it uses a GPU" not in said


def _record_command(directory: Path, *words: str | Path) -> str:
    """Record a launcher that the agent starts, and return what the agent said."""
    mock = {"LD_LIBRARY_PATH": ground.library_path(), "MOCKCUDA_TRUTH": str(directory / "truth-%p.json")}
    done = subprocess.run(
        [sys.executable, "-m", "otel_gpu", "record", *words, "--", *_tree()],
        env={**os.environ, **mock, "MOCKCUDA_STATE": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("suffix", [".folded", ".html", ".pb.gz"])
def test_a_command_is_recorded_with_its_tree(suffix: str, tmp_path: Path) -> None:
    out = tmp_path / f"a{suffix}"
    with _strangers(tmp_path):
        said = _record_command(tmp_path, "-o", out)

    truths = _truths(tmp_path)
    assert (sum(truths.values()), len(truths)) == (_TREE, _PROCESSES)
    assert _recorded(out) == truths
    assert f"kernel launches, {_TREE:,} count:" in said


def test_a_command_alone_is_recorded_where_its_tree_is_left_out(tmp_path: Path) -> None:
    out = tmp_path / "a.otlp.json"
    _record_command(tmp_path, "--no-children", "-o", out)

    assert list(_recorded(out).values()) == [_LAUNCHER]


def test_where_a_process_of_the_tree_uses_a_gpu_that_is_not_what_is_wrong(tmp_path: Path) -> None:
    # What ends within milliseconds is gone before it is looked at, and then not known to have mapped a driver.
    storm = f"{ground.part('programs') / 'launch_storm'} --threads 1 --launches 5 --phases 2 --pause 3"
    done = subprocess.run(
        [sys.executable, "-m", "otel_gpu", "record", "--type", "copy", "-o", "-", "--", "sh", "-c", f"{storm}; :"],
        env={**os.environ, "LD_LIBRARY_PATH": ground.library_path(), "MOCKCUDA_TRUTH": "", "MOCKCUDA_STATE": ""},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("it has ended; choose another --type")


_LEAVES_A_NUMBER = """
import os, sys
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
print('{"event": "phase", "child": %d}' % child, flush=True)
sys.stdin.readline()
"""


def test_a_number_that_another_process_gets_is_not_followed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    storm = ground.part("programs") / "launch_storm"
    with Program([sys.executable, "-c", _LEAVES_A_NUMBER], tmp_path) as launcher:
        launcher.ready()
        arguments = ["--pid", str(launcher.pid), "--output", f"file:{out}"]
        with Agent(arguments, tmp_path, {"LD_LIBRARY_PATH": ground.library_path()}) as agent:
            agent.wait_attached()
            # The agent does not notice that the child ends.
            agent.process.send_signal(signal.SIGSTOP)
            number = launcher.run_phase()["child"]
            _launch_as(number, storm, tmp_path)
            agent.process.send_signal(signal.SIGCONT)
            launcher.go()
            launcher.wait()
            agent.wait()

    assert _exported(out) == {}


def _launch_as(number: int, storm: Path, directory: Path) -> None:
    """Launch in a process of this number."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(2000):
        # Others start processes too: the number is asked for until it comes.
        last.write_text(str(number - 1))
        with Program([storm, "--threads", "1", "--launches", "50", "--gate"], directory) as stranger:
            if stranger.pid == number:
                stranger.ready()
                stranger.run_phase()
                assert stranger.finish().launches.total() == 50
                return
    pytest.fail("the number never came")
