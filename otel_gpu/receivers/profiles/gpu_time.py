"""Whose work kept the GPUs busy? Submissions with their stacks, until the devices' time is handed out among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...bpf.abi.samples import WORK_DEVICE_SHIFT
from ...components.counting.device_time import DeviceTime, part_of
from ...discovery.processes import Process
from ...probes.table import FUNCTIONS
from ...signals.profiles import Frame, FrameKind, Stack, marker
from ...stacks.demangle.names import demangle
from .gpu_time_split import Work, split
from .sums import GRAPH, GRAPH_LAUNCH, NOT_SAMPLED, KernelName, SiteTime, StackSample, below

LAUNCHED_BEFORE = marker("[launched before]")
_MAX_SAMPLES = 1 << 20
"""Of one device, between two profiles. Those beyond keep their weight, and tell nothing of busy periods."""
_NUMBER = (1 << WORK_DEVICE_SHIFT) - 1
_NO_HANDLE = 1 << 63


class _Site(NamedTuple):
    """What was submitted, as `part_of` has it, and where from. Kernels get their names last: they may come late."""

    part: int
    stack: Stack


class GpuTime:
    """What processes submitted since their devices' time was last split. Owned by one thread."""

    def __init__(self, kernel_name: KernelName) -> None:
        self._kernel_name = kernel_name
        self._sites: dict[Process, dict[_Site, int]] = {}
        self._names: dict[Process, dict[int, str]] = {}
        """Of processes that have ended: their kernels' names will not be known later."""
        self._work: dict[Process, dict[int, Work]] = {}

    def clear(self) -> None:
        """Begin anew."""
        self._sites.clear()
        self._names.clear()
        self._work.clear()

    def add(self, process: Process, sample: StackSample, stack: Stack) -> None:
        """Add one submission, and how many others its stack stands for."""
        part = part_of(sample.subject, sample.function)
        if not sample.subject and FUNCTIONS[sample.function] != GRAPH_LAUNCH:
            stack = below(sample, stack)
        site = self._index(process, _Site(part, stack))
        work = self._of(process, sample.value >> WORK_DEVICE_SHIFT)
        others = sample.calls - 1
        if len(work.number) < _MAX_SAMPLES:
            work.number.append(sample.value & _NUMBER)
            work.site.append(site)
            work.when_ns.append(sample.when_ns)
        else:
            others = sample.calls
        if others:
            work.others[site] += others

    def add_remainder(self, process: Process, device: int, calls: int) -> None:
        """Add submissions that no stack stands for."""
        self._of(process, device).unknown += calls

    def name(self, process: Process) -> None:
        """Name what a process launched, which has ended."""
        handles = {site.part for site in self._sites.get(process, ()) if not site.part & _NO_HANDLE}
        self._names[process] = {handle: self._kernel_name(process, handle) for handle in handles}

    def split(self, process: Process, times: Mapping[int, DeviceTime]) -> Iterator[SiteTime]:
        """Yield what each site had of the devices' time, and forget the submissions."""
        devices = self._work.pop(process, {})
        sites = self._sites.pop(process, {})
        names = self._names.pop(process, {})
        stacks = [self._stack(process, site, names) for site in sites]
        for device, time in times.items():
            shares = split(devices.get(device) or Work(), time, [site.part for site in sites])
            yield from (SiteTime(stack, *share) for stack, share in zip(stacks, shares.sites, strict=True))
            for part, share in shares.elsewhere.items():
                yield SiteTime(self._stack(process, _Site(part, (NOT_SAMPLED,)), names), *share)
            yield SiteTime((NOT_SAMPLED if shares.is_sampled else LAUNCHED_BEFORE,), *shares.unknown)

    def _of(self, process: Process, device: int) -> Work:
        return self._work.setdefault(process, {}).setdefault(device, Work())

    def _index(self, process: Process, site: _Site) -> int:
        known = self._sites.setdefault(process, {})
        return known.setdefault(site, len(known))

    def _stack(self, process: Process, site: _Site, names: Mapping[int, str]) -> Stack:
        if not site.part & _NO_HANDLE:
            name = names.get(site.part) or self._kernel_name(process, site.part)
            return (Frame(FrameKind.CUDA, demangle(name)), *site.stack)
        function = FUNCTIONS[site.part & ~_NO_HANDLE]
        if function == GRAPH_LAUNCH:
            return (GRAPH, *site.stack)
        return site.stack if site.stack != (NOT_SAMPLED,) else (Frame(FrameKind.NATIVE, function), NOT_SAMPLED)
