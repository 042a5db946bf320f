"""What works with which capability left out, as another user than root, and does the command say what does not?

Each observed program runs as a user of its own, the agent as a third one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_gpu.bpf.features import probe
from otel_gpu.bpf.link_mode import LinkMode
from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.runtime.privileges import Capability
from otel_gpu.service.rights import LOAD, SERVICE
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.unprivileged import meeting_place, prefix

_OBSERVED, _OBSERVER = 41_001, 41_002
_LAUNCHES = 1000
_ADMIN = Capability.CAP_SYS_ADMIN
_PTRACE, _FILES, _MAPPED = Capability.CAP_SYS_PTRACE, Capability.CAP_DAC_READ_SEARCH, Capability.CAP_CHECKPOINT_RESTORE


def _needed(mode: LinkMode) -> frozenset[Capability]:
    """Return what the mode needs on this kernel, for everything to work."""
    return SERVICE | {_ADMIN} if mode != "multi" and probe().perf_uprobe_needs_admin else SERVICE


# How probes are placed makes no difference to what is read: each capability is left out in one way that needs it.
_CASES: list[tuple[LinkMode, Capability | None]] = [
    *(("multi", left_out) for left_out in (None, *sorted(SERVICE))),
    *(("perf", left_out) for left_out in (None, Capability.CAP_BPF, Capability.CAP_PERFMON, _ADMIN)),
    ("copies", None),
]


@pytest.fixture
def place() -> Iterator[Path]:
    with meeting_place() as directory:
        yield directory


@contextmanager
def _program(place: Path, driver: Path | None = None) -> Iterator[Program]:
    built = ground.part("programs")
    command = [built / "small_program", driver or built / "small_driver.so", str(_LAUNCHES)]
    with Program([*prefix(_OBSERVED), *command], place) as program:
        program.ready()
        yield program


def _finish(program: Program) -> None:
    program.go()
    assert program.wait() == 0


def _configured(place: Path, mode: LinkMode) -> list[str]:
    config = place / "agent.yaml"
    config.write_text(json.dumps({"receivers": {"cuda": {"link": mode}, "self": None}}))
    return ["--config", str(config)]


def _observing(program: Program, place: Path) -> list[str]:
    return ["--pid", str(program.pid), "--output", f"file:{place / 'out'}"]


def _environment(place: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return {**clean, "XDG_CACHE_HOME": str(place / "cache")}


def _line(capabilities: Collection[Capability], *arguments: str) -> list[str]:
    return [*prefix(_OBSERVER, capabilities), sys.executable, "-m", "otel_gpu", *arguments]


def _command(place: Path, capabilities: Collection[Capability], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _line(capabilities, *arguments),
        cwd=place,
        env=_environment(place),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.parametrize("mode, left_out", _CASES)
def test_the_agent_counts_or_says_what_is_missing(mode: LinkMode, left_out: Capability | None, place: Path) -> None:
    held = _needed(mode) - {left_out}
    with _program(place) as program:
        arguments = [*_configured(place, mode), *_observing(program, place)]
        with Agent(arguments, place, _environment(place), within=prefix(_OBSERVER, held)) as agent:
            if _cannot_begin(mode, held):
                assert agent.wait() == 1
                (said,) = [line for line in agent.errors if " INFO " not in line]
                assert left_out.name in said
                return
            agent.wait_watching()
            program.run_phase()
            agent.stop()

    counted = read_metrics(place / "out").total("gpu.cuda.kernel.launch.calls")
    said = left_out is not None and f"without {left_out.name} " in agent.error_text
    assert said == (left_out in SERVICE - LOAD)
    if left_out is _PTRACE:
        assert counted == 0
        assert "attached" not in agent.error_text
    else:
        assert counted == _LAUNCHES


def _cannot_begin(mode: LinkMode, held: Collection[Capability]) -> bool:
    loads = held >= LOAD or _ADMIN in held
    return not loads or (mode != "multi" and probe().perf_uprobe_needs_admin and _ADMIN not in held)


@pytest.mark.parametrize("left_out", [None, *sorted(SERVICE)])
def test_a_recording_is_whole_or_says_what_is_missing(left_out: Capability | None, place: Path) -> None:
    out = place / "out.otlp.json"
    with _program(place) as program:
        recording = subprocess.Popen(
            _line(SERVICE - {left_out}, "record", "--pid", str(program.pid), "--duration", "3600", "-o", str(out)),
            cwd=place,
            env=_environment(place),
            stderr=subprocess.PIPE,
            text=True,
        )
        with recording:
            said = ""
            while "recording" not in said and (line := recording.stderr.readline()):
                said += line
            program.run_phase()
            _finish(program)
            said += recording.stderr.read()

    if left_out in LOAD | {_PTRACE}:
        assert recording.returncode == 1
        assert left_out.name in said.splitlines()[-1]
        return
    assert recording.returncode == 0, said
    assert sum(p.total for p in read_profiles(out)) == _LAUNCHES
    assert (f"without {left_out.name} " in said) == (left_out is not None) if left_out else "without" not in said
    # Its stacks need no more of a native program than files that everybody may read.
    assert "all complete" in said


def test_inspect_shows_what_it_may_and_says_the_rest(place: Path) -> None:
    held = SERVICE - LOAD | {_ADMIN}
    with _program(place) as program, Agent(_observing(program, place), place) as agent:
        agent.wait_watching()

        said = {
            left_out: _command(place, held - {left_out}, "inspect", str(program.pid))
            for left_out in (None, _PTRACE, _ADMIN)
        }

        agent.stop()
    blind = said.pop(_PTRACE)
    assert blind.returncode == 1
    assert "CAP_SYS_PTRACE" in blind.stderr
    for left_out, done in said.items():
        assert done.returncode == 0, done.stderr
        assert "cuLaunchKernel" in done.stdout
        assert ("does not tell what is attached, which takes CAP_SYS_ADMIN" in done.stdout) == (left_out is _ADMIN)
        assert (", 3 attached\n" in done.stdout) == (left_out is None)
        assert done.stderr == ""


_FAILING = {
    # left out: (required checks that fail, others that fail)
    Capability.CAP_BPF: ({"bpf", "capabilities"}, set()),
    Capability.CAP_PERFMON: ({"bpf", "capabilities", "perf events"}, {"cpu samples"}),
    Capability.CAP_SYS_PTRACE: ({"capabilities"}, {"others' memory", "others' files"}),
    Capability.CAP_DAC_READ_SEARCH: (set(), {"capabilities", "others' memory", "others' files"}),
    Capability.CAP_CHECKPOINT_RESTORE: (set(), {"capabilities", "others' files"}),
    None: (set(), set()),
}
_ELSEWHERE = {"nvidia driver", "endpoint otlp", "perf uprobes", "inspect"}
"""Checks that fail for other reasons than the capabilities of a service."""


@pytest.mark.parametrize("left_out", _FAILING)
def test_the_doctor_finds_it_by_trying(left_out: Capability | None, place: Path) -> None:
    with _program(place):
        done = _command(place, SERVICE - {left_out}, "doctor", "--json")
    checks = {c["check"]: c for c in json.loads(done.stdout)}
    failed = {name for name, c in checks.items() if not c["ok"]} - _ELSEWHERE
    required = {name for name in failed if checks[name]["required"]}

    assert done.returncode == int(bool(required)), done.stdout
    expected, others = _FAILING[left_out]
    # Newer kernels let CAP_PERFMON see what a process has mapped.
    assert required - {"others' maps"} == expected
    assert failed - required == others
    if left_out is not None:
        assert left_out.name in checks["capabilities"]["detail"]
        assert all(left_out.name in checks[name]["fix"] for name in failed - {"others' files"})


@pytest.mark.parametrize("held, works", [(SERVICE, not probe().perf_uprobe_needs_admin), (SERVICE | {_ADMIN}, True)])
def test_the_doctor_places_a_probe_in_each_way(held: Collection[Capability], works: bool, place: Path) -> None:
    checks = {
        mode: {
            c["check"]: c
            for c in json.loads(_command(place, held, "doctor", "--json", *_configured(place, mode)).stdout)
        }
        for mode in ("auto", "perf", "copies")
    }

    assert checks["auto"]["uprobe_multi"]["ok"] == probe().uprobe_multi
    assert checks["auto"]["perf uprobes"]["ok"] == works
    assert checks["auto"]["probes"]["ok"] == (probe().uprobe_multi or works)
    assert checks["perf"]["probes"]["ok"] == checks["copies"]["probes"]["ok"] == works
    if not works:
        assert "CAP_SYS_ADMIN" in checks["perf"]["probes"]["fix"]


@pytest.mark.parametrize("left_out", [None, _MAPPED])
def test_a_replaced_driver_is_observed_or_the_agent_says_why_not(left_out: Capability | None, place: Path) -> None:
    """A package's update renames the new file over the old one, which running programs go on to use."""
    driver = place / "libcuda.so.1"
    shutil.copy(ground.part("programs") / "small_driver.so", driver)
    with _program(place, driver) as program:
        newer = place / "newer"
        shutil.copy(driver, newer)
        newer.rename(driver)
        held = prefix(_OBSERVER, SERVICE - {left_out})
        with Agent(_observing(program, place), place, _environment(place), within=held) as agent:
            agent.wait_watching()
            program.run_phase()
            agent.stop()

    counted = read_metrics(place / "out").total("gpu.cuda.kernel.launch.calls")
    assert counted == (0 if left_out else _LAUNCHES)
    assert ("without CAP_CHECKPOINT_RESTORE " in agent.error_text) == (left_out is not None)
