"""What does a stack cost? One of Python and C against an empty probe, a launch profile to its target, CPU sampling."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from statistics import median

from bench import ground
from bench.ground import UnavailableError
from bench.probing import Ours, Rivals
from bench.results import Result, unmeasured
from bench.target import Target
from otel_gpu.bpf.abi.programs import Loss
from otel_gpu.discovery.libraries import LibraryKind
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.probes.attach import AttachedLibrary, plan
from otel_gpu.probes.profile import hooks_for
from otel_gpu.probes.sites import SiteRules
from otel_gpu.receivers.profiles.receiver import ProfileReceiver
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.signals.profiles import CPU, GPU_LAUNCHES, GPU_TIMES, Profile, ProfileType

_CALLS = 600
_EVERY_CALL = 4_000_000_000
_LOAD = 50_000
_LOADED_CALLS = 15_000
_SAMPLING_S = 10.0
_WARM_UP_S = 5.0
"""Until the programs' functions have their names."""
_BUSY = 2


def measure(rounds: int) -> Iterator[Result]:
    """Measure one stack, then what profiles cost the observed program and the agent."""
    with closing(Ours()) as ours, closing(Rivals()) as rivals, _deep_target() as target:
        yield _one_stack(ours, rivals, target, rounds)
        yield _slowdown(ours, target, max(rounds, 5))
        yield _slowdown_by_time(ours, target, max(rounds, 5))
    yield _cpu_sampling()


@contextmanager
def _deep_target() -> Iterator[Target]:
    helper = ground.deep_helper()
    with Target([sys.executable, Path(__file__).parent / "deep.py", helper], [ground.mock_driver()]) as target:
        yield target


@contextmanager
def _receiver(
    ours: Ours, types: Sequence[ProfileType], pids: list[int], stacks_per_second: int
) -> Iterator[ProfileReceiver]:
    receiver = ProfileReceiver(
        ProcessTable({}),
        ours.parsers,
        types,
        tables=ours.tables,
        kernel_name=lambda _process, _handle: "deep",
        only=pids,
        stacks_per_second=stacks_per_second,
    )
    with closing(receiver):
        for pid in pids:
            receiver.observe(pid)
        if not receiver.loader.settle(120):
            raise UnavailableError("unwinding tables took more than two minutes")
        yield receiver


@contextmanager
def _launch_profile(receiver: ProfileReceiver, library: Path) -> Iterator[None]:
    with ElfFile(library) as elf:
        probes = [
            p
            for p in plan(elf, list(hooks_for([GPU_LAUNCHES], LibraryKind.DRIVER)), SiteRules.here())
            if p.symbol == "cuLaunchKernel"
        ]
    with closing(AttachedLibrary(str(library), probes, receiver.linker, str(library))) as attached:
        if attached.attached != 1:
            raise UnavailableError(f"no launch profile: {attached.failures}")
        yield


def _one_stack(ours: Ours, rivals: Rivals, target: Target, rounds: int) -> Result:
    """A stack for each call, against an empty program on the same site."""
    library = ground.mock_driver() / "libcuda.so.1"
    times: dict[str, list[float]] = {"empty": [], "stack": []}
    with _receiver(ours, [GPU_LAUNCHES], [target.pid], _EVERY_CALL) as receiver:
        for _ in range(rounds):
            with rivals.empty(library, ("cuLaunchKernel",)):
                times["empty"].append(_best(target))
            with _launch_profile(receiver, library):
                times["stack"].append(_best(target, receiver))
            receiver.start()
            with _launch_profile(receiver, library):
                target.do("launch 1")
            frames = _depth(receiver.profiles())
        if cut := sum(receiver.truncated.values()):
            return unmeasured("a merged stack over an empty probe", f"{cut} stacks were cut short")
    costs = [stack - empty for stack, empty in zip(times["stack"], times["empty"])]
    cost = median(costs)
    return Result(
        f"a merged stack of {frames} frames over an empty probe",
        f"{median(times['stack']) / 1000:.2f} us",
        f"{median(times['empty']) / 1000:.2f} us",
        cost / 1000,
        " us",
        must=12,
        aim=8,
        note=f"taken at every launch; {min(costs) / 1000:.1f} to {max(costs) / 1000:.1f} us; {frames} frames are shown, "
        "those of the interpreter itself are walked too",
    )


def _best(target: Target, receiver: ProfileReceiver | None = None) -> float:
    found = []
    for _ in range(3):
        lost = receiver.losses()[Loss.EVENTS_FULL] if receiver is not None else 0
        found.append(target.do(f"launch {_CALLS}").ns_per_call)
        if receiver is not None:
            # Before the ring is full: what finds no room is not walked either.
            receiver.profiles()
            if receiver.losses()[Loss.EVENTS_FULL] != lost:
                raise UnavailableError("the ring buffer was full")
    return min(found)


def _depth(profiles: list[Profile]) -> int:
    return max(len(s.stack) for p in profiles for s in p.samples) if profiles else 0


def _slowdown(ours: Ours, target: Target, rounds: int) -> Result:
    """A program that launches 50,000 times a second, counted as always, with its stacks and without."""
    library = ground.mock_driver() / "libcuda.so.1"
    with ours.on(library, ("cuLaunchKernel",)), _receiver(ours, [GPU_LAUNCHES], [target.pid], 400) as receiver:
        return _slower("a launch profile", target, receiver, rounds, lambda: _launch_profile(receiver, library))


def _slowdown_by_time(ours: Ours, target: Target, rounds: int) -> Result:
    """The same with a profile of GPU time, whose programs go on where those that count end."""
    library = ground.mock_driver() / "libcuda.so.1"
    with ours.on(library, ("cuLaunchKernel",)), _receiver(ours, GPU_TIMES, [target.pid], 400) as receiver:
        calls = receiver.submissions
        assert calls is not None
        calls.close()

        @contextmanager
        def profile() -> Iterator[None]:
            calls.open()
            with closing(calls):
                yield

        return _slower("a profile of GPU time", target, receiver, rounds, profile)


def _slower(
    what: str,
    target: Target,
    receiver: ProfileReceiver,
    rounds: int,
    profile: Callable[[], AbstractContextManager[None]],
) -> Result:
    off, on = [], []
    work = _work_for(target, 1e9 / _LOAD)
    order = f"launch {_LOADED_CALLS} {work}"
    for _ in range(rounds):
        off.append(min(target.do(order).ns_per_call for _ in range(3)))
        with profile():
            on.append(min(target.do(order).ns_per_call for _ in range(3)))
    stacks = receiver.complete
    # Neighbours: what else the machine does meets both.
    slower = median((b - a) / a for a, b in zip(off, on))
    return Result(
        f"slowdown by {what} at {1e9 / median(off):,.0f} launches/s",
        f"{median(on) / 1000:.2f} us a launch",
        f"{median(off) / 1000:.2f} us",
        slower * 100,
        " points",
        must=2,
        note=f"a launch after {1e6 / _LOAD:.0f} us of work; {stacks} stacks in {3 * rounds * _LOADED_CALLS:,} launches; at best "
        f"{(min(on) - min(off)) / min(off):.1%}",
    )


def _work_for(target: Target, ns: float) -> int:
    """Return how many rounds of work make a call take so long."""
    bare = min(target.do("launch 20000 0").ns_per_call for _ in range(3))
    some = min(target.do("launch 20000 1000").ns_per_call for _ in range(3))
    return max(int((ns - bare) / ((some - bare) / 1000)), 0)


def _cpu_sampling() -> Result:
    """The agent's own time while it samples two programs that never rest."""
    with contextlib.ExitStack() as stack, closing(Ours()) as ours:
        command = [sys.executable, "-c", "def spin():\n while True: sum(range(99))\nprint(flush=True); spin()"]
        busy = [stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE)) for _ in range(_BUSY)]
        for process in busy:
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
        with _receiver(ours, [CPU], [p.pid for p in busy], 400) as receiver:
            time.sleep(_WARM_UP_S)
            receiver.profiles()
            before, since = time.process_time(), time.monotonic()
            time.sleep(_SAMPLING_S)
            samples = sum(p.total for p in receiver.profiles())
            cpu = (time.process_time() - before) / (time.monotonic() - since)
    return Result(
        f"agent CPU for on-CPU samples at 49 Hz of {_BUSY} busy programs",
        f"{cpu:.2%}",
        "a core",
        cpu * 100,
        " %",
        must=0.3,
        note=f"{samples} stacks in {_SAMPLING_S:.0f} s, named and added up; in a process that does nothing else, after "
        f"{_WARM_UP_S:.0f} s",
    )
