"""Does the command let go of what it does not need, in every thread and child, and does it work on without?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.bpf.features import probe
from otel_gpu.bpf.link_mode import LinkMode
from otel_gpu.config.model import Config
from otel_gpu.config.settings import HealthCheckSettings
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.receivers.self.settings import SelfSettings
from otel_gpu.runtime.privileges import Capability
from otel_gpu.service.rights import LOAD, PART, READ, SERVICE, of_run
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.unprivileged import meeting_place, prefix

_USER, _LAUNCHES = 41_002, 1000
_ROOTS = READ | PART
_PLACING = {
    "multi": frozenset(),
    "perf": frozenset({Capability.CAP_SYS_ADMIN if probe().perf_uprobe_needs_admin else Capability.CAP_PERFMON}),
    "copies": LOAD | ({Capability.CAP_SYS_ADMIN} if probe().perf_uprobe_needs_admin else set()),
}


@dataclass(frozen=True, slots=True)
class Held:
    """What a thread has, as /proc shows it."""

    effective: int
    permitted: int
    inheritable: int
    bounding: int
    ambient: int
    no_new_privileges: int

    @classmethod
    def of(cls, status: Path) -> Held:
        fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        sets = (int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"))
        return cls(*sets, int(fields["NoNewPrivs"]))


def only(
    kept: Collection[Capability],
    passed_on: Collection[Capability] | None = None,
    bounding: Collection[Capability] | None = None,
) -> Held:
    passed_on = kept if passed_on is None else passed_on
    own, children, bound = (
        sum(1 << c for c in s) for s in (kept, passed_on, passed_on if bounding is None else bounding)
    )
    return Held(own, own, children, bound, children, 1)


def threads(pid: int) -> list[Held]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found.append(Held.of(task / "status"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def becomes(asked: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (found := asked()) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


@pytest.fixture
def place() -> Iterator[Path]:
    with meeting_place() as directory:
        yield directory


def _config(place: Path, pid: int, **receivers: object) -> list[str]:
    file = place / "agent.yaml"
    pipeline = {"receivers": list(receivers), "exporters": ["file"]}
    exporters = {"file": {"path": str(place / "out")}}
    file.write_text(
        json.dumps({"receivers": receivers, "exporters": exporters, "service": {"pipelines": {"metrics": pipeline}}})
    )
    return ["--config", str(file), "--pid", str(pid)]


def _small_program(place: Path, *options: str) -> Program:
    built = ground.part("programs")
    return Program([built / "small_program", built / "small_driver.so", str(_LAUNCHES), *options], place)


def _cache(place: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(place / "cache")}


@pytest.mark.parametrize("mode", ["multi", "perf", "copies"])
@pytest.mark.parametrize("user", ["root", "service"])
def test_after_its_start_every_thread_has_what_is_still_needed(mode: LinkMode, user: str, place: Path) -> None:
    given = SERVICE | _PLACING[mode]
    as_user = [] if user == "root" else prefix(_USER, given)
    # Who has no right to lower that set has it as it was given; no_new_privs keeps it from meaning anything.
    bounding = _ROOTS if user == "root" else given
    kept = _ROOTS if user == "root" else READ
    with _small_program(place, "late") as program:
        program.event("waiting")
        config = _config(place, program.pid, cuda={"link": mode}, self=None)
        with Agent(config, place, _cache(place), within=as_user) as agent:
            agent.wait_watching()
            # One thread places further probes, where that takes rights.
            wanted = {only(kept, kept, bounding), only(kept | _PLACING[mode], kept, bounding)}
            becomes(lambda: set(threads(agent.pid)), wanted)

            program.go()
            program.ready()
            agent.wait_for(r"attached \d+ probes to .*small_driver")
            program.run_phase()
            becomes(lambda: set(threads(agent.pid)), wanted)
            agent.stop()

    assert read_metrics(place / "out").total("gpu.cuda.kernel.launch.calls") == _LAUNCHES


def test_a_recording_needs_no_more(place: Path) -> None:
    with _small_program(place) as program:
        program.ready()
        command = ["record", "--pid", str(program.pid), "--type", "cpu", "--duration", "3600", "-o", "out.html"]
        with subprocess.Popen(
            [sys.executable, "-m", "otel_gpu", *command],
            cwd=place,
            env={**os.environ, **_cache(place)},
            stderr=subprocess.PIPE,
            text=True,
        ) as recording:
            assert recording.stderr.readline().startswith("recording cpu")

            assert set(threads(recording.pid)) == {only(_ROOTS)}
            program.run_phase()
            program.go()
            assert program.wait() == 0


@pytest.mark.parametrize(
    "receivers, kept", [({"self": None}, ()), ({"nvml": None}, _ROOTS), ({"cuda": None}, _ROOTS)], ids=str
)
def test_what_is_kept_follows_the_configuration(receivers: dict[str, object], kept: object, place: Path) -> None:
    with Agent(_config(place, os.getpid(), **receivers), place, _cache(place)) as agent:
        agent.wait_watching()
        becomes(lambda: set(threads(agent.pid)), {only(kept)})
        agent.stop()


def test_root_writes_where_it_needs_a_right_to(place: Path) -> None:
    theirs = place / "theirs"
    theirs.mkdir()
    os.chown(theirs, _USER, _USER)
    with Agent(["--pid", str(os.getpid()), "--output", f"file:{theirs}"], place, _cache(place)) as agent:
        agent.wait_watching()
        becomes(lambda: set(threads(agent.pid)), {only(_ROOTS | {Capability.CAP_DAC_OVERRIDE})})
        agent.stop()

    assert (theirs / "metrics.jsonl").exists()


def test_root_listens_and_reads_keys_where_it_needs_a_right_to(place: Path) -> None:
    key = place / "key.pem"
    key.write_text("")
    key.chmod(0o600)
    os.chown(key, _USER, _USER)
    exporter = OtlpSettings(cert_file=str(key))

    needed = of_run(
        Config(
            receivers={"self": SelfSettings()},
            exporters={"otlp": exporter},
            extensions={"health_check": HealthCheckSettings("localhost:80")},
        )
    )

    assert needed.kept == {Capability.CAP_DAC_READ_SEARCH, Capability.CAP_NET_BIND_SERVICE}


_LOOKING = """
import os, sys
from otel_gpu.runtime import privileges
from otel_gpu.service import rights
from otel_gpu.sandbox.files import ProcessFolders
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.receivers.cuda.kernel_names.compiler_caches import kernels_below
privileges.limit(rights.READ | rights.PART)
folders = ProcessFolders(int(sys.argv[1]), [os.fsencode(d) for d in sys.argv[2:]], 1 << 20)
with Parsers() as parsers, parsers.begin(kernels_below, [folders], None) as job:
    print(len([f for f in job.open() if not f.error]))
"""


def test_root_still_looks_into_caches_as_their_user(place: Path) -> None:
    theirs, roots = place / "theirs", place / "roots"
    for directory in (theirs, roots):
        directory.mkdir(mode=0o700)
        (directory / "kernel.cubin").write_bytes(b"x")
    os.chown(theirs, _USER, _USER)
    with Program([*prefix(_USER), "sh", "-c", 'echo {\\"event\\": \\"ready\\"}; read line'], place) as program:
        program.ready()
        done = subprocess.run(
            [sys.executable, "-c", _LOOKING, str(program.pid), theirs, roots],
            env={**os.environ, **_cache(place)},
            capture_output=True,
            text=True,
            check=True,
        )

    assert done.stdout == "1\n"


def test_children_have_no_more_than_the_agent_keeps(place: Path) -> None:
    library = ground.libraries() / "libcublasLt.so.12"
    storm = [ground.part("programs") / "launch_storm", "--gate"]
    seen: set[Held] = set()
    with Program(storm, place, {"LD_PRELOAD": str(library)}) as program:
        program.ready()
        with Agent(["--profiles", "--pid", str(program.pid)], place, _cache(place)) as agent:
            deadline = time.monotonic() + DEADLINE_S
            while not seen:
                assert time.monotonic() < deadline, agent.error_text
                for child in _children(agent.pid):
                    seen.update(threads(child))
            agent.process.kill()

    assert seen == {only(_ROOTS)}


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


_EMBEDDED = """
import os, sys
from pathlib import Path
from otel_gpu import Agent, Config
def capabilities():
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found |= {line for line in (task / "status").read_text().splitlines() if line.startswith(("Cap", "NoNew"))}
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            pass
    return found
before = capabilities()
with Agent(Config.load(environ={}, pids=(os.getpid(),), output=f"file:{sys.argv[1]}")):
    during = capabilities()
print(before == during == capabilities())
"""


def test_a_program_that_embeds_the_agent_keeps_its_rights(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _EMBEDDED, place / "out"],
        env={**os.environ, **_cache(place)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "True\n"
