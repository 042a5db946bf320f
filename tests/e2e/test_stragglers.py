"""Is the rank named that keeps the others waiting, and nobody else, and the collective at which a job hangs?

The stand-in's ranks say themselves when they arrived: a busy host delays them too, and what counts is what was.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.cli.stragglers import Communicator, HangKind, Rules, find, read
from tests.e2e.exported import read_metrics
from tests.e2e.nccl_ranks import Job, Ranks, observed
from tests.e2e.processes import DEADLINE_S


def _lateness_s(job: Job, rank: int, first: int = 0, end: int | None = None) -> float:
    """Return by how much a rank came later than the middle of the others, in the middle of collectives, by their own clock."""
    others = [arrivals for other, arrivals in enumerate(job.arrivals) if other != rank]
    late_ns = [
        own - statistics.median(collective)
        for own, *collective in list(zip(job.arrivals[rank], *others, strict=True))[first:end]
    ]
    return statistics.median(late_ns) / 1e9


def _found(directory: Path, job: Job):
    (found,) = [one for one in find(read([directory])) if one.comm == job.comm]
    return found


def _command(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "otel_gpu", "stragglers", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_LATE = {
    f"{ranks} ranks, {late} late, {how}": (ranks, late, group)
    for ranks, late in ((2, 1), (4, 0), (4, 2))
    for group, how in enumerate(("alone", "in groups"))
}
_HANGS: dict[str, tuple[int, tuple[str, ...], HangKind]] = {
    "one stays away": (4, ("missing=3", "at=12"), HangKind.MISSING),
    "all are stuck": (3, ("stuck=1", "at=7"), HangKind.NOT_COMPLETED),
}


@dataclass(frozen=True)
class Seen:
    """What jobs did, and where an agent wrote what it saw of all of them."""

    directory: Path
    jobs: dict[str, Job]

    def found(self, name: str, rules: Rules = Rules()) -> Communicator:  # noqa: B008 - it is frozen
        comm = self.jobs[name].comm
        (found,) = [one for one in find(read([self.directory]), rules) if one.comm == comm]
        return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Let jobs meet, one after another, before one agent."""
    directory, done = tmp_path_factory.mktemp("jobs"), {}
    with ExitStack() as running:

        def ranks(number: int, *options: str) -> Ranks:
            return running.enter_context(Ranks(directory, number, *options))

        late = {
            name: ranks(n, 60, f"late={late}", "late_us=5000", f"group={group}")
            for name, (n, late, group) in _LATE.items()
        }
        hanging = {name: ranks(n, 20, *options) for name, (n, options, _) in _HANGS.items()}
        other = {"one asks for something else": ranks(4, 20, "mismatch=1", "at=9")}
        jobs = {**late, **other, **hanging}
        with observed(directory, [pid for job in jobs.values() for pid in job.pids]) as agent:
            for name, job in jobs.items():
                job.make()
                done[name] = job.meet()
                if name in hanging:
                    _wait_for_hang(directory, job.comm, _HANGS[name][2])
            agent.stop()
        for job in jobs.values():
            job.end()
    return Seen(directory, done)


@pytest.mark.parametrize("name", _LATE)
def test_the_rank_that_is_5_ms_late_is_named(seen: Seen, name: str) -> None:
    _, late, _ = _LATE[name]
    done, found = seen.jobs[name], seen.found(name)
    assert [s.rank for s in found.stragglers] == [late]
    (named,) = found.stragglers
    assert named.pid == done.pids[late]
    assert named.lateness_s > 0.004
    assert named.lateness_s == pytest.approx(_lateness_s(done, late), rel=0.2, abs=0.001)
    assert found.compared == 60
    assert not found.mismatches
    assert not found.hangs
    metrics = read_metrics(seen.directory).where(lambda s: s.attributes.get("nccl.comm.hash") == done.comm)
    lasts = metrics.by("nccl.collective.last_arrivals", "nccl.rank")
    waits = metrics.by("nccl.collective.waited_for.time", "nccl.rank")
    assert sum(lasts.values()) == 60
    assert lasts[str(late)] == max(lasts.values()) >= 30
    assert waits[str(late)] == max(waits.values())


def test_every_late_rank_is_said(seen: Seen) -> None:
    said = _command(seen.directory)

    missing = [
        n
        for n, (_, late, _) in _LATE.items()
        if f"straggler: rank {late} (process {seen.jobs[n].pids[late]} " not in said
    ]
    assert missing == [], said


def test_nobody_is_named_who_is_late_by_the_truth_neither(tmp_path: Path) -> None:
    with Ranks(tmp_path, 4, 10_000, "pause_us=500") as job:
        with observed(tmp_path, job.pids, settings={"arrivals_per_second": 1 << 20}) as agent:
            job.make()
            done = job.meet()
            agent.stop()
        job.end()

    found, rules = _found(tmp_path, done), Rules()
    assert found.compared == 10_000
    # A busy host delays a rank at times: whoever is named was late in some window.
    late = {
        rank
        for rank in range(4)
        for first in range(0, 10_000, rules.window)
        if _lateness_s(done, rank, first, first + rules.window) >= 0.9 * rules.min_lateness_s
    }
    assert {s.rank for s in found.stragglers} <= late
    assert not found.mismatches
    assert not found.hangs


def test_of_many_collectives_all_ranks_choose_the_same(tmp_path: Path) -> None:
    with Ranks(tmp_path, 2, 20_000) as job:
        with observed(tmp_path, job.pids, settings={"arrivals_per_second": 16}) as agent:
            job.make()
            done = job.meet()
            agent.stop()
        job.end()

    data, found = read([tmp_path]), _found(tmp_path, done)
    told = [{a.sequence for a in data.arrivals if a.rank == rank} for rank in (0, 1)]
    # The last one is told by itself, when it has been quiet for a while.
    assert 10 < len(told[0] & told[1]) < 20_000
    assert found.compared == len(told[0] & told[1])
    assert not found.hangs
    assert {m.sequence for m in data.members.values()} == {20_000}


def _wait_for_hang(directory: Path, comm: str, kind: HangKind) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = find(read([directory]), Rules(hang_s=1)) if (directory / "metrics.jsonl").exists() else []
        if any(hang.kind is kind for one in found if one.comm == comm for hang in one.hangs):
            return
        assert time.monotonic() < deadline, f"no {kind} in {found}"
        time.sleep(0.2)


def test_the_rank_that_stays_away_is_named(seen: Seen) -> None:
    (hang,) = seen.found("one stays away", Rules(hang_s=1)).hangs
    assert (hang.kind, hang.sequence, hang.ranks, hang.waiting) == (HangKind.MISSING, 12, (3,), (0, 1, 2))
    said = _command(seen.directory, "--hang", "1")
    assert "hang: rank 3 (process" in said
    assert "not at collective 12 (AllReduce of 16 float32, sum), where ranks 0, 1, 2 came" in said


def test_what_all_have_entered_and_does_not_end_is_told(seen: Seen) -> None:
    name = "all are stuck"
    (hang,) = seen.found(name, Rules(hang_s=1)).hangs
    assert (hang.kind, hang.sequence, hang.ranks) == (HangKind.NOT_COMPLETED, 7, (0, 1, 2))
    plain = json.loads(_command(seen.directory, "--hang", "1", "--json"))
    kinds = {one["comm"]: [h["kind"] for h in one["hangs"]] for one in plain}
    assert {n: kinds[job.comm] for n, job in seen.jobs.items() if kinds[job.comm]} == {
        name: ["entered and not completed"],
        "one stays away": ["rank missing"],
    }


def test_a_rank_that_asks_for_something_else_is_named(seen: Seen) -> None:
    (mismatch,) = seen.found("one asks for something else").mismatches
    assert mismatch.sequence == 9
    assert {asked.count: ranks for asked, ranks in mismatch.asked.items()} == {16: (0, 2, 3), 17: (1,)}
    said = _command(seen.directory)
    assert "mismatch at collective 9: ranks 0, 2, 3: AllReduce of 16 float32, sum; rank 1: AllReduce of 17" in said
