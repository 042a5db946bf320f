"""The cost of an agent's start, of this tree and of another one, in turn.

Run: python -m bench.starts OTHER_TREE [--rounds 10] [--load 8]   (needs root; OTHER_TREE is a checkout after `make setup`)

Each round starts `otel-gpu run` of both trees twice: on a process that uses no GPU, and on one that has mapped the mock driver. It
prints the CPU time of the agent and its children until the agent observes, and the time until its first probes are in place.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parents[1]
_DRIVER = _HERE / "tests" / "standins" / "cuda" / "libcuda.so.1"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_BUSY = "while True: pass"


class Start(NamedTuple):
    """What one start took, in seconds."""

    cpu_s: float
    """Of the agent and its children, until it observes."""
    observes_s: float
    probes_s: float | None
    """Until the first probes are in place; None where there are none to place."""


def start(tree: Path, pid: int) -> Start:
    """Start the agent of a tree on a process, and stop it once it observes."""
    out = tempfile.mkdtemp()
    command = [tree / ".venv" / "bin" / "otel-gpu", "run", "--pid", str(pid), "--output", f"file:{out}"]
    began, probes_s = time.monotonic(), None
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as agent:
        assert agent.stderr is not None
        for line in agent.stderr:
            if "attached" in line and probes_s is None:
                probes_s = time.monotonic() - began
            if "observing" in line:
                break
        found = Start(_session_cpu_s(agent.pid), time.monotonic() - began, probes_s)
        agent.terminate()
    shutil.rmtree(out, ignore_errors=True)
    return found


def _session_cpu_s(session: int) -> float:
    """Return the CPU time of all processes of a session, and of those that they have waited for."""
    ticks = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))
    return ticks * _TICK_S


@contextmanager
def _running(command: Sequence[str], environment: dict[str, str] | None = None) -> Iterator[int]:
    with subprocess.Popen(command, env={**os.environ, **(environment or {})}) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--load", type=int, default=0, help="processes that keep a CPU busy meanwhile")
    arguments = parser.parse_args()
    trees = {"other": arguments.other.absolute(), "this": _HERE}
    subprocess.run(["make", "-s", "-C", _DRIVER.parent], check=True)
    with ExitStack() as stack:
        for _ in range(arguments.load):
            stack.enter_context(_running([sys.executable, "-c", _BUSY]))
        sleep = ["sleep", "infinity"]
        targets = {
            "nothing to observe": stack.enter_context(_running(sleep)),
            "one driver": stack.enter_context(_running(sleep, {"LD_PRELOAD": str(_DRIVER)})),
        }
        found: dict[tuple[str, str], list[Start]] = {(t, w): [] for t in trees for w in targets}
        for _ in range(arguments.rounds):
            for what, pid in targets.items():
                for name, tree in trees.items():
                    found[name, what].append(start(tree, pid))
    print(
        f"{arguments.rounds} rounds, load {arguments.load}: median (least) in seconds, and this tree's median over the other's"
    )
    for what in targets:
        for field in Start._fields:
            columns = [[v for s in found[name, what] if (v := getattr(s, field)) is not None] for name in trees]
            if all(columns):
                other, this = (statistics.median(column) for column in columns)
                least = " ".join(
                    f"{name} {m:.2f} ({min(c):.2f})" for name, m, c in zip(trees, (other, this), columns, strict=True)
                )
                print(f"  {what:20s}{field:12s}{least}   {this / other:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
