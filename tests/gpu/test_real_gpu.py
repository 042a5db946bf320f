"""Does the agent see on a real driver what happened there? Against what programs know of themselves, and NVIDIA's CUPTI."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.probes.attach import plan
from otel_gpu.probes.sites import SiteRules
from otel_gpu.probes.table import DRIVER
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.signals.profiles import GPU_LAUNCHES, FrameKind, is_truncated
from tests.gpu.hardware import Gpu, missing
from tests.gpu.observation import Program, Snapshot, observing, record

LAUNCHES, USAGE, LOST = "gpu.cuda.kernel.launch.calls", "gpu.cuda.memory.usage", "otel_gpu.events.lost"
KERNEL, UUID = "cuda.kernel.name", "cuda.device.uuid"
FIRST, LATE, COMPLETE = 0.99, 0.99, 0.99
"""Shares of the launches that must have their names, and of the stacks that must reach their thread's start."""
CLOCKS = 0.02
"""How far the events' time may lie outside the bounds: a batch's first event comes before its first launch."""
LIBRARIES_BYTES = 256 << 20
"""What libraries may take from the driver themselves, beside PyTorch's allocator."""
RECORD_S = 5.0
_HANDLE = re.compile(r"\+0x[0-9a-f]+$")


def _base(name: str) -> str:
    """Reduce a name to what every demangler writes alike: no return type, template arguments or parameters."""
    name = name.removeprefix("void ").replace("(anonymous namespace)", "anonymous").replace("{anonymous}", "anonymous")
    return re.split(r"[<(]", name)[0]


def _share_named(seen: Counter[str], truth: Counter[str]) -> float:
    """Say what share of the launches has its own name; fails when their number is another."""
    assert truth.total() > 0, "CUPTI gave no kernels"
    assert seen.total() == truth.total()
    right = _bases(seen) & _bases(truth)
    print("not as CUPTI calls them:", _bases(seen) - right, "against", _bases(truth) - right)
    handles = sum(n for name, n in seen.items() if _HANDLE.search(name))
    share = right.total() / truth.total()
    print(f"{share:.2%} of {truth.total():.0f} launches have their names, {handles:.0f} are shown by handle")
    return share


def _bases(names: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, n in names.items():
        found[_base(name)] += int(n)
    return found


@dataclass(frozen=True)
class Seen:
    """One program's phases: what it said, and what the agent had counted before the first and after each."""

    said: list[dict[str, Any]]
    snapshots: list[Snapshot]

    def launches(self, phase: int) -> Counter[str]:
        return +(self.snapshots[phase + 1].by(LAUNCHES, KERNEL) - self.snapshots[phase].by(LAUNCHES, KERNEL))

    def copies(self, phase: int) -> dict[str, tuple[int, int]]:
        before, after = self.snapshots[phase].copies(), self.snapshots[phase + 1].copies()
        started = {kind: before.get(kind, (0, 0)) for kind in after}
        return {kind: (n - started[kind][0], size - started[kind][1]) for kind, (n, size) in after.items()}


def _has_settled(before: Snapshot, said: dict[str, Any]) -> Callable[[Snapshot], bool]:
    """Return what tells that a phase's launches have come, and the device's identity, which NVML is slow to give."""
    launches = sum(said.get("kernels", said.get("launches", {})).values())
    expected = before.total(LAUNCHES) + launches
    return lambda seen: seen.total(LAUNCHES) >= expected and bool(seen.values(UUID))


def _observe(gpu: Gpu, directory: Path, phases: int, script: str, *options: str) -> Seen:
    """Observe a program from before its first call."""
    with Program(script, *options) as program:
        program.reach("started")
        with observing(gpu, program.pid, directory) as observer:
            program.go("ready")
            said, snapshots = [], [observer.look()]
            for phase in range(phases):
                if phase:
                    program.go("ready")
                said.append(program.go("phase"))
                snapshots.append(observer.look(_has_settled(snapshots[-1], said[-1])))
            return Seen(said, snapshots)


@pytest.fixture(scope="module")
def driver(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return _observe(gpu, tmp_path_factory.mktemp("driver"), 2, "driver_calls.py")


@pytest.fixture(scope="module")
def torch(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    if why := missing("torch"):
        pytest.skip(why)
    return _observe(gpu, tmp_path_factory.mktemp("torch"), 2, "torch_steps.py")


def test_every_site_in_this_driver_is_emulated(gpu: Gpu) -> None:
    with ElfFile(gpu.path) as elf:
        probes = plan(elf, DRIVER, SiteRules.here())

    sites = Counter((p.site, p.instruction.split()[0], p.cost.value) for p in probes)
    print(f"{gpu}: {len(probes)} functions", *sites.items(), sep="\n")
    assert len(probes) > 50
    assert {p.symbol: (p.instruction, p.reason) for p in probes if not p.cost.is_fast} == {}


def test_every_probe_is_in_place_and_nothing_is_lost(driver: Seen) -> None:
    probes = driver.snapshots[-1].by("otel_gpu.probes", "otel_gpu.state")

    print(probes)
    assert probes["attached"] > 50
    assert probes["failed"] == 0
    assert +driver.snapshots[-1].by(LOST, "otel_gpu.event") == {}


def test_known_launches_copies_fills_and_memory_are_exact(driver: Seen) -> None:
    said, seen = driver.said[0], driver.snapshots[1]

    assert driver.launches(0) == Counter(said["launches"])
    assert driver.copies(0) == {kind: tuple(sums) for kind, sums in said["copies"].items()}
    assert seen.total("gpu.cuda.memset.bytes") == said["filled"]
    assert seen.total("gpu.cuda.memory.allocations") == said["allocated"]
    assert seen.total(USAGE) == said["held"]
    assert seen.total("gpu.cuda.errors") == 0


def test_the_device_has_the_uuid_that_nvidia_smi_writes(driver: Seen) -> None:
    uuids = driver.snapshots[-1].values(UUID)

    assert {uuid.replace("-", "") for uuid in uuids} == {driver.said[0]["uuid"]}
    tool = shutil.which("nvidia-smi") or pytest.skip("no nvidia-smi here")
    done = subprocess.run(
        [tool, "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    assert {f"GPU-{uuid}" for uuid in uuids} <= set(done.stdout.split())


def test_busy_time_bounds_contain_what_events_measured(driver: Seen) -> None:
    before, after = (snapshot.by("gpu.cuda.busy.time", "otel_gpu.bound") for snapshot in driver.snapshots[1:])
    measured = driver.said[1]["device_s"]

    lower, upper = (after[bound] - before[bound] for bound in ("lower", "upper"))
    print(f"busy: {lower:.4f} <= {measured:.4f} <= {upper:.4f} s")
    assert 0 < lower <= measured * (1 + CLOCKS)
    assert upper >= measured * (1 - CLOCKS)


@pytest.mark.parametrize("step", [0, 1], ids=["first", "warm"])
def test_pytorch_launches_what_cupti_counts_by_name(step: int, torch: Seen) -> None:
    assert _share_named(torch.launches(step), Counter(torch.said[step]["kernels"])) >= FIRST


def test_pytorch_copies_what_cupti_counts(torch: Seen) -> None:
    moved = torch.copies(1).values()

    assert [sum(n for n, _ in moved), sum(size for _, size in moved)] == torch.said[1]["copies"]


def test_memory_in_use_is_what_pytorch_reserved(torch: Seen) -> None:
    reserved, seen = torch.said[1]["reserved"], torch.snapshots[-1].by(USAGE, "cuda.memory.type")

    print(f"reserved by PyTorch {reserved}, seen {dict(seen)}")
    assert reserved <= seen["device"] <= reserved + LIBRARIES_BYTES


def test_launches_are_named_when_the_agent_comes_late(gpu: Gpu, tmp_path: Path) -> None:
    if why := missing("torch"):
        pytest.skip(why)
    with Program("torch_steps.py") as program:
        program.reach("started")
        for event in ("ready", "phase", "ready"):
            program.go(event)
        with observing(gpu, program.pid, tmp_path) as observer:
            before = observer.look()
            said = program.go("phase")
            seen = Seen([said], [before, observer.look()])

    assert _share_named(seen.launches(0), Counter(said["kernels"])) >= LATE


def test_stacks_of_launches_are_complete_and_name_python(tmp_path: Path) -> None:
    if why := missing("torch"):
        pytest.skip(why)
    path = tmp_path / "launches.otlp.json"
    # The recording first makes unwinding tables of gigabytes of libraries.
    with Program("torch_steps.py", "--seconds", "180") as program:
        program.reach("started")
        for event in ("ready", "phase", "ready", "phase", "ready"):
            program.go(event)
        program.let_go()
        record(program.pid, RECORD_S, path)

    profile = next(p for p in read_profiles(path) if p.type.name == GPU_LAUNCHES.name)
    complete = sum(s.value for s in profile.samples if not is_truncated(s.stack)) / profile.total
    python = sum(s.value for s in profile.samples if any(f.kind is FrameKind.CPYTHON for f in s.stack)) / profile.total
    print(f"{profile.total} launches, {complete:.2%} with complete stacks, {python:.2%} with Python frames")
    assert complete >= COMPLETE
    assert any(f.function.endswith("train_step") for s in profile.samples for f in s.stack)


@pytest.fixture(params=[("triton_add.py", "triton"), ("cupy_scale.py", "cupy")], ids=["triton", "cupy"])
def compiled(request: pytest.FixtureRequest, gpu: Gpu, tmp_path: Path) -> Seen:
    """Programs whose kernels are compiled while they run."""
    script, module = request.param
    if why := missing(module, *(["torch"] if module == "triton" else [])):
        pytest.skip(why)
    return _observe(gpu, tmp_path, 2, script)


def test_kernels_compiled_at_run_time_are_named_and_counted(compiled: Seen) -> None:
    for phase, said in enumerate(compiled.said):
        seen = compiled.launches(phase)
        assert said["right"], "the program's own result is wrong under observation"
        for kernel, times in said["launches"].items():
            assert seen[kernel] == times
        copies = compiled.copies(phase)
        for kind, size in said.get("copied", {}).items():
            assert copies[kind][1] == size
