"""RDMA: is every work request counted, with the right queue pair, latency and completion, whatever the program does?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.bpf.abi.programs import Table
from tests.e2e import ground, nccl_ranks
from tests.e2e.verbs import READ, RTS, SEND, WRITE, Observed, Points, Verbs, built, observing

DURATION = "rdma.client.operation.duration"
IO, MESSAGES = "rdma.io", "rdma.messages"
MANY_PAIRS = 70_000
"""More than the kernel's tables have entries, 65,536, of which one program has half."""


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("verbs"))


@dataclass(frozen=True)
class Running:
    """An agent and the programs that it observes, by name: those of a test are its own."""

    observed: Observed
    programs: dict[str, Verbs]

    def __getitem__(self, name: str) -> Verbs:
        return self.programs[name]


_FRESH = ("exact", "devices", "extended", "memory", "liar", "busy", "constant", "errors", "unsignaled", "states", "top")
_QUEUES = ("queue_read", "queue_alone", "queue_unread")
_LATE = ("late", "late_constant", "forged", "late_queue")
_OPCODE, _LENGTH, _NUMBER = 1, 2, 4


@pytest.fixture(scope="module")
def running(where: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start programs, two of them with work under way already, and one agent for all."""
    with ExitStack() as stack:
        programs = {name: stack.enter_context(Verbs(where)) for name in (*_FRESH, *_QUEUES, *_LATE)}
        for name in _LATE:
            programs[name].do("open", 2)
        for name in ("late", "late_constant"):
            programs[name].do("pairs", 0, 1, 128, 0, RTS)
            programs[name].do("post", 0, WRITE, 5, 100, 1, 0 if name == "late" else 1)
        programs["late_queue"].do("queue", 0, 0)
        programs["late_queue"].do("pairs", 0, 2, 128, 0, RTS)
        # Where no function begins: a probe there would break it.
        programs["forged"].do("point", 1)
        observed = stack.enter_context(observing(tmp_path_factory.mktemp("out"), *programs.values(), queue_pairs=2))
        observed.until_placed(*programs.values())
        for name in (*_FRESH, *_QUEUES):
            programs[name].do("open", 2)
        observed.until_followed(*(p for name, p in programs.items() if name != "forged"))
        yield Running(observed, programs)


def test_all_that_is_posted_is_counted_with_its_bytes_and_completes(running: Running) -> None:
    program = running["exact"]
    program.do("pairs", 0, 1, 128, 0, RTS)
    for operation in (WRITE, SEND, READ):
        for _ in range(5):
            program.do("post", 0, operation, 100, 4096, 1, 0)
            assert program.do("poll", 0, 100) == 100
    program.do("chain", 0, 10, 7)
    assert program.do("poll", 0, 10) == 10
    program.do("deliver", 0, 777, 1)
    program.do("deliver", 0, 5, 0)
    assert program.do("poll", 0, 2) == 2
    program.do("receive", 0)

    points = running.observed.until(program.pid, lambda p: p.total("rdma.receives.posted") == 2)

    where = ("rdma.operation", "network.io.direction")
    assert points.by(MESSAGES, *where) == {
        ("write", "transmit"): 500,
        ("send", "transmit"): 510,
        ("read", "receive"): 500,
        ("receive_imm", "receive"): 1,
        ("receive", "receive"): 1,
    }
    assert points.by(IO, *where) == {
        ("write", "transmit"): 500 * 4096,
        ("send", "transmit"): 500 * 4096 + 10 * 3 * 7,
        ("read", "receive"): 500 * 4096,
        ("receive_imm", "receive"): 777,
        ("receive", "receive"): 5,
    }
    assert points.by(DURATION, "rdma.operation") == {"write": 500, "send": 510, "read": 500}
    assert points.by("rdma.client.operation.service.duration", "rdma.operation") == points.by(
        DURATION, "rdma.operation"
    )
    assert points.total("rdma.probe.unmatched") == 0
    assert points.total("rdma.qp.inflight") == 0
    assert points.by("rdma.probe.coverage", "rdma.probe.coverage") == {"full": 1}
    assert points.by(MESSAGES, "rdma.device", "network.peer.address", "rdma.port") == {
        ("standin0", "10.9.0.2", 1): points.total(MESSAGES)
    }


def test_a_request_takes_as_long_as_its_completion_is_not_seen(running: Running) -> None:
    program = running["states"]
    program.do("pairs", 0, 1, 128, 1, RTS)
    program.do("post", 0, WRITE, 2, 8, 0, 0)
    program.do("pause", 50)
    assert program.do("poll", 0, 1) == 1
    points = running.observed.until(program.pid, lambda p: p.total(DURATION) == 1)
    assert points.total("rdma.qp.inflight") == 1
    assert points.seconds(DURATION) >= 0.05
    assert program.do("poll", 0, 1) == 1
    points = running.observed.until(program.pid, lambda p: p.total(DURATION) == 2)
    assert points.total("rdma.qp.inflight") == 0
    # The second began when the first was over.
    assert points.seconds("rdma.client.operation.service.duration") < points.seconds(DURATION)

    program.do("error", 0)
    points = running.observed.until(program.pid, lambda p: "err" in p.by("rdma.qp.state_changes", "rdma.qp.state"))
    assert points.by("rdma.qp.state_changes", "rdma.qp.state") == {"init": 1, "rtr": 1, "rts": 1, "err": 1}
    assert points.by("rdma.qp.state", "rdma.qp.state") == {"err": 1}


def test_unsignaled_work_is_over_with_the_completion_behind_it(running: Running) -> None:
    program = running["unsignaled"]
    program.do("pairs", 0, 1, 128, 0, RTS)
    for _ in range(5):
        program.do("post", 0, WRITE, 104, 16, 8, 0)
        assert program.do("poll", 0, 100) == 13

    points = running.observed.until(program.pid, lambda p: p.total(DURATION) == 65)

    assert points.total(MESSAGES) == 520
    assert points.total("rdma.qp.inflight") == 0


def test_a_number_on_two_devices_is_two_queue_pairs(running: Running) -> None:
    program = running["devices"]
    program.do("pairs", 0, 3, 128, 0, RTS)
    program.do("pairs", 1, 3, 128, 0, RTS)
    for pair, count in ((0, 10), (1, 20), (2, 30), (3, 40), (4, 50), (5, 60)):
        program.do("post", pair, WRITE, count, 1000 + pair, 1, 0)
    # The other device's first, so that a tool that takes the two for one finds them in the wrong order.
    assert program.do("poll", 1, 1000) == 150
    assert program.do("poll", 0, 1000) == 60

    points = running.observed.until(program.pid, lambda p: p.total(DURATION) == 210)

    assert points.by(DURATION, "rdma.device", "network.peer.address") == {
        ("standin0", "10.9.0.2"): 60,
        ("standin1", "10.9.0.3"): 150,
    }
    assert points.by(IO, "rdma.device") == {
        "standin0": 10 * 1000 + 20 * 1001 + 30 * 1002,
        "standin1": 40 * 1003 + 50 * 1004 + 60 * 1005,
    }
    assert points.total("rdma.probe.unmatched") == 0


def test_the_busiest_queue_pairs_have_their_numbers(running: Running) -> None:
    program = running["top"]
    program.do("pairs", 0, 4, 128, 0, RTS)

    def after(*posts: tuple[int, int]) -> Points:
        """Have so many posted by pairs, and return what is said then: of all of them nothing was said before."""
        wanted = running.observed.points(program.pid).total(MESSAGES) + sum(count for _, count in posts)
        for pair, count in posts:
            program.do("post", pair, WRITE, count, 8, 0, 0)
        return running.observed.until(program.pid, lambda p: p.total(MESSAGES) == wanted)

    def by_number(points: Points, name: str = MESSAGES) -> dict[object, float]:
        shown = points.by(name, "rdma.local.qpn", "rdma.remote.qpn")
        assert all(other == 4000 + own for own, other in shown if own is not None)
        return {own: count for (own, _), count in shown.items()}

    points = after((0, 10), (1, 90), (2, 20), (3, 80))
    assert by_number(points) == {None: 30, 18: 90, 20: 80}
    assert by_number(points, IO) == {None: 240, 18: 720, 20: 640}
    assert by_number(points, "rdma.qp.inflight") == by_number(points)
    # They keep their numbers when others do more for a while,
    assert by_number(after((0, 60), (2, 10), (1, 1))) == {None: 100, 18: 91, 20: 80}
    # until one of those has done twice as much as the least busy.
    assert by_number(after((0, 120), (3, 5))) == {None: 105, 17: 120, 18: 91, 20: 80}
    points = after((0, 1), (1, 1), (3, 1))
    assert by_number(points) == {None: 106, 17: 121, 18: 92, 20: 80}
    # What is under way now is of those that have a number now.
    assert by_number(points, "rdma.qp.inflight") == {None: 30 + 86, 17: 191, 18: 92}


def test_what_is_posted_by_functions_of_its_own_is_counted(running: Running) -> None:
    program = running["extended"]
    program.do("pairs", 0, 1, 128, 0, RTS)
    # Its functions are known once it has been initialised: what is posted before they are probed is not seen.
    for _ in range(1000):
        program.do("extended", 0, 1, 100)
        program.do("poll", 0, 10)
        if running.observed.points(program.pid).total(MESSAGES):
            break
    before = running.observed.points(program.pid)
    program.do("extended", 0, 100, 100)
    assert program.do("poll", 0, 100) == 100

    points = running.observed.until(program.pid, lambda p: p.total(MESSAGES) >= before.total(MESSAGES) + 100)

    assert points.total(MESSAGES) == before.total(MESSAGES) + 100
    assert points.total(IO) == before.total(IO) + 100 * 100
    assert set(points.by(MESSAGES, "rdma.operation")) == {"write"}
    assert points.total(DURATION) >= before.total(DURATION) + 100


def _until_its_queue_is_seen(running: Running, program: Verbs, pair: int, reading: int) -> Points:
    """Its functions are known once a queue pair has been initialised: what completes before they are probed is not seen."""
    for _ in range(1000):
        program.do("post", pair, SEND, 1, 8, 1, 0)
        assert program.do("take", 0, 1, reading) == 1
        points = running.observed.points(program.pid)
        if points.total(DURATION) + points.total("rdma.probe.unmatched"):
            break
    return running.observed.points(program.pid)


def test_what_completes_in_queues_with_functions_of_their_own_is_of_its_queue_pair(running: Running) -> None:
    program = running["queue_read"]
    everything = _OPCODE | _LENGTH | _NUMBER
    program.do("queue", 0, 0)
    program.do("pairs", 0, 2, 128, 0, RTS)
    program.do("queue", 1, 0)
    program.do("pairs", 1, 1, 128, 0, RTS)
    before = _until_its_queue_is_seen(running, program, 0, everything)
    for pair, count in ((0, 30), (1, 50), (2, 70)):
        program.do("post", pair, WRITE, count, 8, 1, 0)
    assert program.do("take", 1, 100, everything) == 70
    assert program.do("take", 0, 100, everything) == 80
    program.do("deliver", 1, 777, 1)
    program.do("deliver", 1, 5, 0)
    program.do("post", 1, WRITE, 2, 8, 1, 0, 0xBAD)
    assert program.do("take", 0, 100, everything) == 4

    points = running.observed.until(program.pid, lambda p: p.total("rdma.completion.errors") == 2)

    assert points.by(DURATION, "rdma.operation", "rdma.device") == {
        ("send", "standin0"): before.total(DURATION),
        ("write", "standin0"): 80,
        ("write", "standin1"): 70,
    }
    received = {"network.io.direction": "receive"}
    assert {
        (a["rdma.operation"], p.name): p.value
        for p in points.all
        if received.items() <= (a := dict(p.attributes)).items()
    } == {("receive_imm", MESSAGES): 1, ("receive_imm", IO): 777, ("receive", MESSAGES): 1, ("receive", IO): 5}
    assert points.by("rdma.completion.errors", "rdma.completion.status", "rdma.device") == {
        ("rem_access_err", "standin0"): 1,
        ("wr_flush_err", "standin0"): 1,
    }
    assert "unread" not in points.by("rdma.probe.unmatched", "otel_gpu.reason")


def test_what_completes_in_the_queue_of_one_pair_is_its_though_nothing_is_read(running: Running) -> None:
    program = running["queue_alone"]
    program.do("queue", 0, 1)
    program.do("pairs", 0, 1, 128, 0, RTS)
    before = _until_its_queue_is_seen(running, program, 0, 0)
    program.do("post", 0, WRITE, 40, 8, 1, 0)
    assert program.do("take", 0, 100, 0) == 40
    program.do("deliver", 0, 99, 0)
    assert program.do("take_received", 0, 100, _LENGTH) == 1

    points = running.observed.until(program.pid, lambda p: p.by(MESSAGES, "rdma.operation")["receive"] == 1)

    assert points.by(DURATION, "rdma.operation") == {"send": before.total(DURATION), "write": 40}
    assert points.by(IO, "rdma.operation")["receive"] == 99
    assert "unread" not in points.by("rdma.probe.unmatched", "otel_gpu.reason")
    assert points.total("rdma.qp.inflight") == 0


def test_of_what_completes_and_is_not_read_it_is_said_that_nobody_knows_of_what_it_is(running: Running) -> None:
    program = running["queue_unread"]
    program.do("queue", 0, 0)
    program.do("pairs", 0, 2, 128, 0, RTS)
    unread = "rdma.probe.unmatched", "otel_gpu.reason"
    before = _until_its_queue_is_seen(running, program, 0, 0).by(*unread)["unread"]
    # Each has the same numbers as the other, and is the one or the other's.
    for pair in (0, 1):
        program.do("post", pair, WRITE, 50, 8, 1, 1)
    program.do("post", 1, WRITE, 1, 8, 1, 0, 0xBAD)
    assert program.do("take", 0, 200, 0) == 101

    points = running.observed.until(program.pid, lambda p: p.by(*unread)["unread"] == before + 101)

    assert points.total(DURATION) == 0
    assert points.by("rdma.completion.errors", "rdma.completion.status", "rdma.device") == {("rem_access_err", None): 1}
    # What is under way is not known either, and not told.
    assert points.total("rdma.qp.inflight") == 0
    # Whose work it is, is known again of what is read.
    for _ in range(3):
        program.do("post", 0, WRITE, 100, 8, 1, 0)
        assert program.do("take", 0, 100, _OPCODE | _NUMBER) == 100
    points = running.observed.until(program.pid, lambda p: p.total(DURATION) == 300)
    assert points.by(*unread)["unread"] == before + 101


def test_a_queue_with_functions_of_its_own_that_is_older_than_the_agent_is_seen(running: Running) -> None:
    program = running["late_queue"]
    for pair in (0, 1):
        program.do("post", pair, WRITE, 50, 8, 1, 0)
    # Whether it had one pair alone nobody saw: only what is read is known.
    assert program.do("take", 0, 40, 0) == 40
    assert program.do("take", 0, 100, _OPCODE | _NUMBER) == 60
    program.do("deliver", 0, 33, 0)
    assert program.do("take", 0, 100, _OPCODE | _NUMBER | _LENGTH) == 1

    points = running.observed.until(program.pid, lambda p: p.by(MESSAGES, "rdma.operation")["receive"] == 1)

    unmatched = points.by("rdma.probe.unmatched", "otel_gpu.reason")
    assert unmatched["unread"] == 40
    assert unmatched["before"] == 60
    assert points.by(IO, "rdma.operation")["receive"] == 33


def test_errors_are_told_by_status_and_flush_the_rest(running: Running) -> None:
    program = running["errors"]
    program.do("pairs", 0, 1, 128, 0, RTS)
    program.do("post", 0, WRITE, 3, 8, 1, 0)
    program.do("post", 0, WRITE, 5, 8, 1, 0, 0xBAD)
    assert program.do("poll", 0, 100) == 8

    status = "rdma.completion.status"
    points = running.observed.until(program.pid, lambda p: p.total("rdma.completion.errors") == 5)

    assert points.by("rdma.completion.errors", status) == {"rem_access_err": 1, "wr_flush_err": 4}
    assert points.total(DURATION) == 3
    assert points.total("rdma.qp.inflight") == 0
    # The program has not asked for it.
    assert points.by("rdma.qp.state", "rdma.qp.state") == {"err": 1}
    assert "err" not in points.by("rdma.qp.state_changes", "rdma.qp.state")
    program.do("event", 1)
    points = running.observed.until(program.pid, lambda p: p.total("rdma.async.events") == 1)
    assert points.by("rdma.async.events", "rdma.async.event") == {"qp_fatal": 1}


def test_memory_is_registered_and_given_back(running: Running) -> None:
    program = running["memory"]
    for size, how in ((4096, 0), (8192, 1), (100, 2), (0, 0)):
        program.do("register", size, how)
    program.do("deregister", 1)

    points = running.observed.until(program.pid, lambda p: p.total("rdma.mr.registration.errors") == 1)

    assert points.total("rdma.mr.registrations") == 3
    assert points.total("rdma.mr.registration.duration") == 3
    assert points.total("rdma.mr.registered") == 4196


def test_a_destroyed_pair_is_counted_and_its_number_begins_anew(running: Running) -> None:
    program = running["constant"]
    program.do("pairs", 0, 1, 128, 0, RTS)
    program.do("post", 0, WRITE, 7, 8, 1, 1)
    # All have one number: which is which their order says.
    assert program.do("poll", 0, 100) == 7
    program.do("destroy", 0)

    points = running.observed.until(program.pid, lambda p: p.total(DURATION) == 7)

    assert points.total(MESSAGES) == 7
    assert points.total("rdma.qp.state") == 0
    assert points.total("rdma.probe.unmatched") == 0


def test_pointers_to_nowhere_cost_the_program_nothing_and_are_said(running: Running) -> None:
    program = running["liar"]
    program.do("pairs", 0, 1, 128, 0, RTS)
    program.do("lie", 0, 4)
    program.do("lie", 0, 0x7FFFFFFF)
    program.do("post", 0, WRITE, 3, 10, 1, 0)
    assert program.do("poll", 0, 100) == 5

    points = running.observed.until(program.pid, lambda p: p.total(MESSAGES) == 5)

    assert points.total(IO) == 30
    lost = points.by("otel_gpu.process.events.lost", "otel_gpu.event")
    assert lost["read_failed"] >= 2
    assert lost["implausible"] >= 1


def test_a_forged_table_has_no_probe_where_no_function_begins(running: Running) -> None:
    program = running["forged"]

    refused = running.observed.receiver.placing.probes()[1]

    assert refused.get("an address where no function begins", 0) >= 1
    program.do("point", 1)
    program.do("pairs", 0, 1, 16, 0, 0)
    assert program.process.poll() is None


def test_a_program_that_asks_all_the_time_is_looked_at_in_windows(running: Running) -> None:
    program = running["busy"]
    program.do("pairs", 0, 1, 128, 0, RTS)
    posted = 0
    for _ in range(100):
        program.do("spin", 0, 200, 400, 0)
        coverage = running.observed.points(program.pid).by("rdma.probe.coverage", "rdma.probe.coverage")
        if coverage == {"sampled": 1}:
            break
    points = running.observed.points(program.pid)
    posted = points.total(MESSAGES)

    assert coverage == {"sampled": 1}
    assert 0 < points.total(DURATION) <= posted
    assert points.total("rdma.probe.sampling_ratio") < 1


def test_what_was_under_way_before_is_not_guessed(running: Running) -> None:
    program = running["late"]
    # Those of before are 5; nobody knows what there is of them.
    assert program.do("poll", 0, 100) == 5
    program.do("post", 0, WRITE, 50, 8, 1, 0)
    assert program.do("poll", 0, 100) == 50
    points = running.observed.until(program.pid, lambda p: p.total("rdma.probe.unmatched") == 55)
    assert points.total(DURATION) == 0
    assert points.total(MESSAGES) == 50
    # Once as many were posted as can be under way, a number that comes once is one request.
    for _ in range(3):
        program.do("post", 0, WRITE, 100, 8, 1, 0)
        program.do("poll", 0, 100)
    program.do("post", 0, WRITE, 100, 8, 1, 0)
    assert program.do("poll", 0, 100) == 100
    points = running.observed.until(program.pid, lambda p: p.total(MESSAGES) == 450)
    assert points.total(DURATION) >= 100
    assert points.total(DURATION) + points.total("rdma.probe.unmatched") == 455


def test_one_number_for_all_work_is_never_matched_late(running: Running) -> None:
    program = running["late_constant"]
    for _ in range(10):
        program.do("post", 0, WRITE, 100, 8, 1, 1)
        program.do("poll", 0, 100)

    points = running.observed.until(program.pid, lambda p: p.total(MESSAGES) == 1000)

    # Of the five before nobody knows when they were completed, and with them nobody knows it of any other.
    assert points.total(DURATION) == 0
    assert points.by("rdma.probe.unmatched", "otel_gpu.reason").keys() <= {"before", "ambiguous"}


def test_what_works_past_libibverbs_is_told_and_nothing_else_is(where: Path, tmp_path: Path) -> None:
    names = ("direct", "idle", "many", "receiving", "late_idle")
    with ExitStack() as stack:
        programs = {name: stack.enter_context(Verbs(where)) for name in names}
        programs["late_idle"].do("open", 1)
        programs["late_idle"].do("pairs", 0, 1, 16, 0, RTS)
        with observing(tmp_path / "out", *programs.values(), queue_pairs=2) as observed:
            observed.until_placed(*programs.values())
            for program in programs.values():
                program.do("open", 1)
            observed.until_followed(*programs.values())
            for name in ("direct", "idle", "receiving"):
                programs[name].do("pairs", 0, 1, 16, 0, RTS)
            programs["many"].do("pairs", 0, MANY_PAIRS, 16, 0, RTS)
            # Where it is seen to be ready it is still of before.
            programs["late_idle"].do("ready", 0)
            programs["direct"].do("direct", 0)
            programs["receiving"].do("deliver", 0, 5, 0)
            assert programs["receiving"].do("poll", 0, 1) == 1

            assert _coverage(observed, programs["direct"], "control-only").total(MESSAGES) == 0
            _coverage(observed, programs["receiving"], "full")
            _coverage(observed, programs["late_idle"], "unknown")
            for name in ("idle", "many"):
                _coverage(observed, programs[name], "idle")
            for name in ("idle", "many", "late_idle"):
                programs[name].do("post", 0, WRITE, 1, 8, 1, 0)
                _coverage(observed, programs[name], "full")


def _coverage(observed: Observed, program: Verbs, wanted: str) -> Points:
    """Wait until so much of a program is said to be seen; never may another that is seen be said to work past libibverbs."""

    def is_so(points: Points) -> bool:
        said = points.by("rdma.probe.coverage", "rdma.probe.coverage")
        assert wanted == "control-only" or said["control-only"] == 0, said
        return said == {wanted: 1}

    return observed.until(program.pid, is_so)


def test_many_queue_pairs_take_nothing_from_another_program(where: Path, tmp_path: Path) -> None:
    with Verbs(where) as hog, Verbs(where) as quiet:
        for program in (hog, quiet):
            program.do("open", 1)
        with observing(tmp_path / "out", hog, quiet, queue_pairs=2) as observed:
            observed.until_followed(hog, quiet)
            hog.do("pairs", 0, MANY_PAIRS, 16, 0, 0)
            hog.do("each", MANY_PAIRS, 10)
            quiet.do("pairs", 0, 50, 16, 0, RTS)
            for pair in range(50):
                quiet.do("post", pair, SEND, 4, 100, 1, 0)
            assert quiet.do("poll", 0, 1000) == 200

            mine = observed.until(quiet.pid, lambda p: p.total(DURATION) == 200)
            its = observed.until(hog.pid, lambda p: p.total(MESSAGES) == MANY_PAIRS)

            assert mine.total(MESSAGES) == 200
            assert mine.total("otel_gpu.process.events.lost") == 0
            # Nothing of its own is lost but which queue pair it was.
            assert its.total(IO) == 10 * MANY_PAIRS
            # Those that found no room have no number, however much they do together.
            numbers = its.by(MESSAGES, "rdma.local.qpn")
            assert numbers.pop(None) == MANY_PAIRS - 2
            assert set(numbers.values()) == {1}
            assert all(17 <= number < 17 + MANY_PAIRS for number in numbers)
            assert its.by("otel_gpu.process.events.lost", "otel_gpu.event")["rdma_full"] > 0
            filled = observed.receiver.fill()["queue_pairs"]
            assert filled[0] <= filled[1] // 2 + 51


def test_an_agent_that_begins_anew_says_the_same_of_what_comes(where: Path, tmp_path: Path) -> None:
    with Verbs(where) as program:
        program.do("open", 1)
        program.do("pairs", 0, 1, 128, 0, RTS)
        for n in (1, 2):
            with observing(tmp_path / f"out{n}", program) as observed:
                observed.until_followed(program)
                program.do("post", 0, SEND, 100, 11, 1, 0)
                assert program.do("poll", 0, 100) == 100

                points = observed.until(program.pid, lambda p: p.total(MESSAGES) == 100)

                assert points.by(IO, "rdma.operation") == {"send": 1100}
                # What it was connected to was said before.
                assert points.by(IO, "network.peer.address") == {None: 1100}
        assert program.end() == 0


def test_a_queue_pair_that_nccl_makes_for_one_communicator_is_its(where: Path, tmp_path: Path) -> None:
    library = nccl_ranks.build() / "libnccl.so.2"
    with Verbs(where, STANDIN_NCCL=str(library)) as program:
        # It has the library before the agent looks, and no communicator.
        program.do("maker", 0, 0)
        program.do("nccl")
        program.do("open", 1)
        with observing(tmp_path / "out", program, nccl=True) as observed:
            observed.until_followed(program)
            observed.until_nccl()
            for comm in (1, 2, 3):
                program.do("comm", comm)
            # By the program itself, by NCCL for the first and the second, beside NCCL, and in a group of two.
            for how, comm in ((0, 0), (1, 1), (1, 2), (2, 1), (3, 2), (1, 2)):
                program.do("maker", how, comm)
                program.do("pairs", 0, 1, 16, 0, RTS)
            for pair in range(6):
                program.do("post", pair, SEND, 1 << pair, 8, 1, 0)
            assert program.do("poll", 0, 100) == 63
            points = observed.until(program.pid, lambda p: p.total(DURATION) == 63)

    hashes = [nccl_ranks.fnv(bytes([n]) + bytes(127)) for n in (1, 2)]
    of_comms = {hashes[0]: 1 << 1, hashes[1]: (1 << 2) + (1 << 5), None: 1 + (1 << 3) + (1 << 4)}
    assert points.by(MESSAGES, "nccl.comm.hash") == of_comms
    assert points.by(DURATION, "nccl.comm.hash") == of_comms


def test_only_gpu_processes_are_looked_at_unless_all_are_asked_for(where: Path, tmp_path: Path) -> None:
    mock = ground.part("mock") / "libcuda.so.1"
    with ExitStack() as stack:
        gpu, other = stack.enter_context(Verbs(where, LD_PRELOAD=str(mock))), stack.enter_context(Verbs(where))
        with observing(tmp_path / "out", gpu, other, processes="observed") as observed:
            observed.until_placed(gpu)
            for program in (gpu, other):
                program.do("open", 1)
            observed.until_followed(gpu)
            for program in (gpu, other):
                program.do("pairs", 0, 1, 128, 0, RTS)
                program.do("post", 0, SEND, 10, 11, 1, 0)
                program.do("poll", 0, 100)

            assert observed.until(gpu.pid, lambda p: p.total(MESSAGES) == 10).total(DURATION) == 10
            assert observed.points(other.pid).total(MESSAGES) == 0
            gpu.end()
            other.end()
            _until_released(observed)


def _until_released(observed: Observed) -> None:
    """Of programs that have ended nothing stays in the tables."""
    import time

    deadline = time.monotonic() + 60
    tables = {t.name.lower() for t in (Table.QUEUE_PAIRS, Table.WORK_RINGS, Table.RDMA_ROWS, Table.VERBS_PROGRAMS)}
    while any(observed.receiver.fill()[table][0] for table in tables):
        assert time.monotonic() < deadline, observed.receiver.fill()
        observed.agent.snapshot()
        time.sleep(0.1)
