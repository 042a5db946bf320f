"""Are NCCL's calls counted as they were made: how often, of how many bytes, on whose communicator?"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.nccl_ranks import Ranks, build, exported_of, fnv, observed
from tests.e2e.processes import DEADLINE_S, Program

_SCRIPT = ground.PROGRAMS / "nccl_calls.py"
_U = "unknown"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Metrics, list[str]]:
    """Return what was exported of a program that calls everything, and the hashes of its ids."""
    command = [sys.executable, _SCRIPT, build() / "libnccl.so.2"]
    metrics, said = exported_of(command, tmp_path_factory.mktemp("calls"))
    return metrics, [fnv(bytes(one)) for one in said["ids"]]


def _calls(metrics: Metrics, name: str) -> Counter[tuple[object, ...]]:
    keys = ("nccl.comm.hash", "nccl.rank", "nccl.nranks", "nccl.collective", "nccl.datatype", "nccl.reduction")
    found: Counter[tuple[object, ...]] = Counter()
    for sample in metrics.named(name).samples:
        found[tuple(sample.attributes.get(key) for key in keys)] += sample.value
    return found


def test_every_call_is_counted_once_where_it_was_made(seen: tuple[Metrics, list[str]]) -> None:
    metrics, (first, second, third) = seen
    bytes_, calls = _calls(metrics, "nccl.collective.bytes"), _calls(metrics, "nccl.collective.calls")

    of_ids = {
        (first, 3, 4, "AllReduce", "float16", "avg"): (2, 2020),
        (second, 1, 3, "ReduceScatter", "float64", "sum"): (1, 160),
        (third, 2, 6, "AllGather", "float64", None): (1, 240),
        (third, 2, 6, "AlltoAll", "int8", None): (1, 40),
        (first, 3, 4, "Broadcast", "int8", None): (2, 110),
        (second, 1, 3, "Reduce", "float64", "prod"): (1, 560),
        (second, 1, 3, "Gather", "int8", None): (1, 80),
        (second, 1, 3, "Scatter", "int8", None): (1, 90),
        (first, 3, 4, "Send", "float64", None): (1, 88),
        (first, 3, 4, "Recv", "float64", None): (1, 96),
        (_U, 5, 8, "AllReduce", "int8", "max"): (1, 9),
    }
    assert {key: (calls[key], bytes_[key]) for key in of_ids} == of_ids
    rest = {key: count for key, count in calls.items() if key not in of_ids}
    assert sorted((key[1:], count) for key, count in rest.items()) == [
        ((0, 2, "AllReduce", "float64", "sum"), 3),
        ((1, 2, "AllReduce", "float64", "sum"), 1),
        ((1, 2, "AllReduce", "float64", "sum"), 3),
    ]
    hashes = {key[0] for key in rest}
    assert len(hashes) == 2
    assert not hashes & {_U, first, second, third}


def test_lives_groups_and_errors_are_counted(seen: tuple[Metrics, list[str]]) -> None:
    metrics, (first, second, _) = seen

    made = {
        str(s.attributes["nccl.function"]): s.histogram.count for s in metrics.named("nccl.comm.init.duration").samples
    }
    names = ("CommInitRank", "CommInitRankConfig", "CommInitRankScalable", "CommInitAll", "CommSplit")
    assert made == dict.fromkeys(names, 1)
    assert metrics.by("nccl.comm.aborts", "nccl.comm.hash") == {second: 1}
    assert metrics.by("nccl.errors", "error.type") == {"ncclInvalidArgument": 1}
    assert metrics.histogram("nccl.group.enqueue.duration").count == 3
    assert metrics.by("nccl.comm.sequence", "nccl.comm.hash")[first] == 4
    calls = sum(_calls(metrics, "nccl.collective.calls").values())
    assert metrics.histogram("nccl.collective.enqueue.duration").count == calls


@pytest.mark.parametrize("program", ["ranks_static", "ranks_stripped"])
def test_a_copy_in_the_program_is_counted(tmp_path: Path, program: str) -> None:
    with Ranks(tmp_path, 2, 30, program=program) as job:
        with observed(tmp_path, job.pids, wants_probes=program) as agent:
            job.make()
            job.meet()
            agent.stop()
        job.end()

    metrics = read_metrics(tmp_path)
    assert metrics.total("nccl.collective.calls") == 60
    assert metrics.total("nccl.collective.bytes") == 60 * 16 * 4
    assert metrics.by("nccl.collective.calls", "nccl.rank") == {"0": 30, "1": 30}
    assert metrics.by("nccl.collective.calls", "nccl.comm.hash") == {job.comm: 60}


def test_of_communicators_older_than_the_agent_ranks_are_known_and_hashes_are_not(tmp_path: Path) -> None:
    with Ranks(tmp_path, 3, 40) as job:
        job.make()
        with observed(tmp_path, job.pids) as agent:
            job.meet()
            agent.stop()
        job.end()

    metrics = read_metrics(tmp_path)
    assert metrics.by("nccl.collective.calls", "nccl.rank") == {"0": 40, "1": 40, "2": 40}
    assert metrics.by("nccl.collective.calls", "nccl.comm.hash") == {_U: 120}
    assert not metrics.named("nccl.collective.arrival_skew").samples


def test_what_the_host_sees_done_has_a_duration_and_nothing_else_has(tmp_path: Path) -> None:
    library = build() / "libnccl.so.2"
    command = [sys.executable, ground.PROGRAMS / "nccl_waits.py", library]
    with Program(command, tmp_path, {"LD_LIBRARY_PATH": ground.library_path()}) as program:
        program.ready()
        with observed(tmp_path, [program.pid]) as agent:
            said = program.run_phase()
            agent.stop()
        program.go()
        assert program.wait() == 0, program.error_text

    every = read_metrics(tmp_path)
    metrics = every.of(program.pid)
    durations: Counter[object] = Counter()
    seconds: Counter[object] = Counter()
    for sample in metrics.named("nccl.collective.duration").samples:
        assert sample.attributes["nccl.completion"] == "host_wait"
        assert (sample.attributes["nccl.rank"], sample.attributes["nccl.nranks"]) == (3, 4)
        durations[sample.attributes["nccl.collective"]] += sample.histogram.count
        seconds[sample.attributes["nccl.collective"]] += sample.histogram.sum
    assert durations == {"AllReduce": 1, "AllGather": 2, "Broadcast": 1, "Reduce": 16}
    assert 0.05 <= seconds["AllReduce"] <= said["waited_s"]
    assert seconds["Broadcast"] <= said["grouped_s"]
    # Bandwidths are of those that were alone, by nccl-tests' formulas.
    bandwidths = metrics.by("nccl.collective.bus_bandwidth", "nccl.collective")
    assert set(bandwidths) == {"AllReduce", "Broadcast"}
    assert bandwidths["AllReduce"] == pytest.approx(4000 * 2 * 3 / 4 / seconds["AllReduce"])
    assert bandwidths["Broadcast"] == pytest.approx(40 / seconds["Broadcast"])
    assert every.by("otel_gpu.events.lost", "otel_gpu.event")["nccl_pending_full"] == 4


_MANY = """
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
comm, size = ctypes.c_void_p(), ctypes.c_size_t(10)
for n in range(int(sys.argv[2])):
    name = ctypes.create_string_buffer(n.to_bytes(8, "little"), 128)
    assert not nccl.ncclCommInitRankScalable(ctypes.byref(comm), 2, 1, 1, name, None)
    assert not nccl.ncclAllReduce(None, None, size, 7, 0, comm, None)
print('{"event": "phase"}', flush=True)
sys.stdin.readline()
"""
"""Makes so many communicators, and asks each for one collective."""


def test_calls_of_the_descendants_of_a_chosen_process_are_counted(tmp_path: Path) -> None:
    library = build() / "libnccl.so.2"
    launcher = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", _MANY, library, "3"]
    metrics, _ = exported_of(launcher, tmp_path)
    assert not metrics.samples

    assert read_metrics(tmp_path).total("nccl.collective.calls") == 3


def _wait_for_calls(directory: Path, calls: dict[int, int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not _are_counted(read_metrics(directory), calls):
        assert time.monotonic() < deadline
        time.sleep(1)


def _are_counted(metrics: Metrics, calls: dict[int, int]) -> bool:
    return all(metrics.of(pid).total("nccl.collective.calls") >= n for pid, n in calls.items())


def test_many_communicators_take_nothing_from_another_program(tmp_path: Path) -> None:
    # The kernel's tables have 65,536 entries, of which one program has half.
    library, many = build() / "libnccl.so.2", 70_000
    with (
        Program([sys.executable, "-c", _MANY, library, str(many)], tmp_path) as hog,
        Program([sys.executable, _SCRIPT, library], tmp_path) as quiet,
    ):
        for program in (hog, quiet):
            program.ready()
        with observed(tmp_path, [hog.pid, quiet.pid], interval="1s") as agent:
            hog.run_phase(300)
            said = quiet.run_phase()
            _wait_for_calls(tmp_path, {hog.pid: many, quiet.pid: 20})
            agent.stop()
        for program in (hog, quiet):
            program.go()
            assert program.wait() == 0, program.error_text

    metrics = read_metrics(tmp_path)
    its, mine = metrics.of(hog.pid), metrics.of(quiet.pid)
    # Nothing of the hog's own is lost but which communicators they were.
    assert its.total("nccl.collective.calls") == many
    assert its.total("nccl.collective.bytes") == 40 * many
    first = fnv(bytes(said["ids"][0]))
    assert mine.by("nccl.collective.calls", "nccl.comm.hash")[first] == 6
    assert mine.total("nccl.collective.calls") == 20
    assert mine.by("nccl.comm.sequence", "nccl.comm.hash")[first] == 4
