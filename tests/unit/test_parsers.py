"""What strangers made is read by children that can do no harm, and what goes wrong there costs nobody else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.probes.planning import plan_library
from otel_gpu.sandbox import parsers as module
from otel_gpu.sandbox.batches import each
from otel_gpu.sandbox.confinement import Limits
from otel_gpu.sandbox.files import FileId, MappedFile, ProcessFile, RootedFile
from otel_gpu.sandbox.mappings import executable_mappings, parse_executable, read_executable
from otel_gpu.sandbox.parsers import Job, Parsers, RefusedError, StuckError, WorkError
from otel_gpu.sandbox.work import OpenFile
from tests.unit import parser_works as works

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    with Parsers(modules=("tests.unit.parser_works", "otel_gpu.sandbox.mappings")) as running:
        yield running


def host(path: Path | str) -> RootedFile:
    return RootedFile(-1, os.fsencode(path))


def children(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def test_files_are_read_and_what_cannot_be_opened_has_a_reason(parsers: Parsers, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("some text")
    files = [host(tmp_path / "text"), host(tmp_path / "not there"), ProcessFile(os.getpid(), "comm")]

    text, missing, comm = parsers.run(works.head, files, 4)

    assert (text, missing) == (b"some", b"No such file or directory")
    assert comm == Path("/proc/self/comm").read_bytes()[:4]


def test_what_is_no_regular_file_is_not_opened(parsers: Parsers, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.fspath(tmp_path / "socket"))
        names = ("fifo", "link", "socket", ".")
        answers = list(parsers.run(works.head, [host(tmp_path / name) for name in names], 1))

    assert [answer.endswith(b"is no regular file") for answer in answers] == [True] * len(names)


def test_a_path_below_a_root_does_not_lead_out_of_it(parsers: Parsers, tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "inside" / "text").write_text("inside")
    (tmp_path / "inside" / "up").symlink_to("../outside")
    (tmp_path / "inside" / "absolute").symlink_to("/text")
    (tmp_path / "inside" / "magic").symlink_to(f"/proc/{os.getpid()}/root{tmp_path}/outside")
    root = os.open(tmp_path / "inside", os.O_PATH)
    paths = (b"/text", b"/../outside", b"/up", b"/absolute", b"/magic")
    try:
        given, *answers = parsers.run(works.head, [RootedFile(0, path) for path in paths], 6, given=[root])
    finally:
        os.close(root)

    assert given == b"descriptor"
    assert answers[0] == answers[3] == b"inside"
    assert {answers[1], answers[2], answers[4]} == {b"No such file or directory"}


def test_a_mapped_file_is_the_very_one_that_is_mapped(parsers: Parsers, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program, "60"]) as running:
        deadline = time.monotonic() + DEADLINE_S
        while not (found := [m for m in executable_mappings(parsers, running.pid) if m.path == os.fsencode(program)]):
            assert time.monotonic() < deadline
        # Replaced by rename, as installers do.
        (tmp_path / "other").write_text("another file")
        (tmp_path / "other").rename(program)
        by_link, by_path, other = parsers.run(
            works.head,
            [
                found[0],
                host(program),
                MappedFile(running.pid, 0, 0x1000, 0, found[0].device, found[0].inode, found[0].path),
            ],
            4,
        )
        running.kill()

    assert by_link in (b"\x7fELF", b"/tmp") or b"CAP_CHECKPOINT_RESTORE" in by_link
    assert by_path == b"anot"
    assert b"is another file than the one that process" in other


@pytest.mark.parametrize(
    "attempt",
    [
        "__import__('os').open('/etc/passwd', 0)",
        "__import__('os').listdir('/')",
        "__import__('os').stat('/etc')",
        "__import__('os').unlink('/tmp/nothing')",
        "__import__('os').fork()",
        "__import__('os').execv('/bin/true', ['true'])",
        "__import__('os').kill(1, 0)",
        "__import__('os').setuid(0)",
        "__import__('os').pipe()",
        "__import__('socket').socket()",
        "__import__('time').sleep(0.001)",
        "__import__('mmap').mmap(-1, 4096, prot=5)",
        "__import__('resource').setrlimit(9, (1 << 40, 1 << 40))",
    ],
)
def test_a_child_can_only_compute(parsers: Parsers, attempt: str) -> None:
    assert list(parsers.run(works.attempt, [], attempt)) == ["PermissionError: 1"]


def test_a_child_has_no_rights_left(parsers: Parsers) -> None:
    with parsers.begin(works.pid, [], 0) as job:
        status = Path(f"/proc/{job.ask(0)}/status").read_text()
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)

    assert {lines[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
    assert os.geteuid() or lines["Uid"].split()[0] != "0"


def test_a_child_has_no_descriptors_but_those_of_its_work(parsers: Parsers, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("some text")
    with (tmp_path / "text").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        (open_ones,) = parsers.run(works.descriptors, [host(tmp_path / "text")], 256)

    assert len(open_ones) == 2 + len({0, 1, 2} & set(open_ones))


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("while True: pass", Limits(answer_s=0.5), "did not answer in time"),
        ("while True: pass", Limits(cpu_s=1, answer_s=DEADLINE_S), "ended before it was done"),
        ("__import__('ctypes').string_at(0)", Limits(), "ended before it was done"),
        ("x" * 100_000, Limits(answer_bytes=1000), "more than it may"),
    ],
)
def test_a_child_that_takes_too_much_ends_alone(parsers: Parsers, code: str, limits: Limits, reason: str) -> None:
    with pytest.raises(StuckError, match=reason):
        list(parsers.run(works.attempt, [], code, limits=limits))

    assert list(parsers.run(works.head, [], 1)) == []


def test_memory_is_limited(parsers: Parsers) -> None:
    with pytest.raises(RefusedError) as refused:
        list(parsers.run(works.allocate, [], 1 << 40))

    assert refused.value.error == "MemoryError"


def test_a_file_that_is_cut_off_while_it_is_looked_at_ends_the_child_only(parsers: Parsers, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 8192)
    with parsers.begin(works.cut, [host(file)], "", execute=True) as job:
        job.open()
        os.truncate(file, 0)
        with pytest.raises(StuckError, match="ended before"):
            list(job.answers())


def test_what_ends_a_child_is_told_from_the_files_beside_it(parsers: Parsers, tmp_path: Path) -> None:
    contents = [b"good", b"fault", b"good", b"loop", b"raise", b"good", b""]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    files = [host(tmp_path / str(number)) for number in range(len(contents) + 1)]

    outcomes = {o.number: o for o in each(parsers, works.some, files, "", Limits(answer_s=1.0))}

    assert sorted(outcomes) == list(range(len(files)))
    assert [n for n, o in sorted(outcomes.items()) if o.answer is not None] == [0, 2, 5, 6]
    assert "No such file" in outcomes[7].reason
    assert outcomes[0].opened is not None
    assert outcomes[0].opened.id == FileId.of((tmp_path / "0").stat())


def test_a_batch_of_nothing_but_bad_files_comes_to_its_end(parsers: Parsers, tmp_path: Path) -> None:
    (tmp_path / "fault").write_bytes(b"fault")

    outcomes = list(each(parsers, works.some, [host(tmp_path / "fault")] * 40, ""))

    assert sorted(o.number for o in outcomes) == list(range(40))
    assert {o.answer for o in outcomes} == {None}
    assert outcomes[-1].reason == "too many files beside it cannot be read"


def test_the_agent_gets_the_descriptors_that_it_asks_for_and_closes_the_others(
    parsers: Parsers, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    before = len(os.listdir("/proc/self/fd"))
    with parsers.begin(works.head, [host(tmp_path / n) for n in ("a", "no", "b")], 1, keep=True) as job:
        job.open()
        kept = job.kept.pop(2)
        assert sorted(job.kept) == [0]
    try:
        assert os.pread(kept, 10, 0) == b"b"
    finally:
        os.close(kept)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_service_answers_as_long_as_it_is_asked(parsers: Parsers) -> None:
    with parsers.begin(works.add, [], 5) as job:
        assert [job.ask(n) for n in range(100)] == [n + 5 for n in range(100)]


def test_answers_of_another_kind_are_not_believed(parsers: Parsers) -> None:
    with pytest.raises(StuckError, match="cannot be understood"):
        list(parsers.run(works.liar, [], ""))


def test_what_is_asked_of_a_process_that_is_gone_has_a_reason(parsers: Parsers) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (answer,) = parsers.run(works.head, [ProcessFile(gone.pid, "maps")], 1)

    assert answer == b"No such file or directory"


def test_children_outlive_the_thread_that_needed_them_first_and_not_the_program() -> None:
    code = (
        "import os, threading, time\n"
        "from otel_gpu.sandbox.parsers import Parsers\n"
        "from tests.unit import parser_works as works\n"
        "parsers = Parsers(modules=('tests.unit.parser_works',))\n"
        "first = threading.Thread(target=lambda: list(parsers.run(works.attempt, [], '1')))\n"
        "first.start(); first.join()\n"
        "with parsers.begin(works.add, [], 1) as job:\n"
        "    for _ in range(20):\n"
        "        assert job.ask(1) == 2\n"
        "        time.sleep(0.01)\n"
        "    print(parsers._server.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        server = int(program.stdout.readline())
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{server}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_children_are_gone_when_idle_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_S", 0.1)
    before = children(os.getpid())
    with Parsers(modules=("tests.unit.parser_works",)) as idle:
        for _ in range(2):
            assert list(idle.run(works.attempt, [], "1")) == ["1"]
            deadline = time.monotonic() + DEADLINE_S
            while children(os.getpid()) - before:
                assert time.monotonic() < deadline
                time.sleep(0.01)


def test_what_work_needs_is_imported_when_it_is_asked_for_or_expected() -> None:
    has_it = "'otel_gpu.probes.torch' in __import__('sys').modules"
    with Parsers(modules=("tests.unit.parser_works",)) as running:
        assert list(running.run(works.attempt, [], has_it)) == ["False"]
        running.prepare(plan_library)
        assert list(running.run(works.attempt, [], has_it)) == ["True"]


def _ask_for_ever(job: Job[int]) -> None:
    while True:
        job.ask(1)


def test_a_child_that_starts_children_is_replaced_when_somebody_ends_it() -> None:
    before = children(os.getpid())
    with Parsers(modules=("tests.unit.parser_works",)) as running:
        assert list(running.run(works.attempt, [], "1")) == ["1"]
        (server,) = children(os.getpid()) - before
        with running.begin(works.add, [], 1) as job:
            assert job.ask(1) == 2
            os.kill(server, 9)
            deadline = time.monotonic() + DEADLINE_S
            while Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                assert time.monotonic() < deadline
            with pytest.raises(WorkError):
                _ask_for_ever(job)
        assert list(running.run(works.attempt, [], "2")) == ["2"]


def test_nothing_is_started_any_more_at_the_end() -> None:
    running = Parsers()
    running.close()
    with pytest.raises(WorkError, match="is ending"):
        list(running.run(works.head, [], 1))


def test_mappings_are_read_as_the_kernel_writes_them() -> None:
    lines = (
        b"7f0000000000-7f0000001000 r-xp 00002000 fe:00 12 /lib/a b\\012c.so (deleted)\n"
        b"7f0000001000-7f0000002000 r--p 00002000 fe:00 12 /lib/a.so\n"
        b"7f0000002000-7f0000003000 r-xp 00000000 00:00 0 \n"
        b"7f0000004000-7f0000005000 r-xp 00000000 00:00 0 [vdso]\n"
        b"nonsense\n"
    )

    assert list(parse_executable(lines)) == [
        (0x7F0000000000, 0x7F0000001000, 0x2000, 0xFE, 0, 12, b"/lib/a b\nc.so"),
        (0x7F0000002000, 0x7F0000003000, 0, 0, 0, 0, b""),
        (0x7F0000004000, 0x7F0000005000, 0, 0, 0, 0, b"[vdso]"),
    ]


def test_a_process_that_ends_while_it_is_read_has_nothing_mapped() -> None:
    ended = subprocess.Popen(["sleep", "60"])
    descriptor = os.open(f"/proc/{ended.pid}/maps", os.O_RDONLY)
    try:
        ended.kill()
        # Not only ended, but gone: the kernel has no error for the one, and ESRCH for the other.
        ended.wait()
        maps = OpenFile(descriptor, None, 0, "maps")

        assert list(read_executable.function([maps], None)) == [[]]
    finally:
        os.close(descriptor)
