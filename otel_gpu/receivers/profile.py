"""Which code launches, waits, copies, holds memory, runs? Stacks of the kernel, added up into profiles."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import abi
from ..bpf.cpu_events import CpuSampler
from ..bpf.features import probe
from ..bpf.linker import LinkMode, ObjectLinker
from ..bpf.maps import BpfMap
from ..bpf.object import BpfObject
from ..bpf.ringbuf import RingReader
from ..discovery.libraries import FileId, Library, LibraryKind
from ..discovery.processes import Process, ProcessTable
from ..elf import ElfFile
from ..errors import ElfError, UnsupportedKernelError
from ..probes.attach import AttachedLibrary, plan
from ..probes.profile import hooks_for
from ..probes.sites import Policy
from ..probes.table import FUNCTIONS
from ..profiles import (
    CPU,
    GPU_ALLOC_SPACE,
    GPU_COPY,
    GPU_INUSE_SPACE,
    GPU_LAUNCHES,
    GPU_WAIT,
    Frame,
    FrameKind,
    Profile,
    ProfileBuilder,
    ProfileType,
    Stack,
    marker,
)
from ..symbols.demangle import demangle
from ..symbols.stacks import COMPLETE, FileNames, StackNamer
from ..unwind.cache import TableCache
from ..unwind.loader import UnwindLoader

_log = logging.getLogger(__name__)
_NAMES_FOR_S = 1.0
"""How long a named stack is taken for the same when its addresses come again."""

_SAMPLED = {
    int(abi.SampleType.LAUNCH): GPU_LAUNCHES,
    int(abi.SampleType.WAIT): GPU_WAIT,
    int(abi.SampleType.COPY): GPU_COPY,
}

Program = tuple[int, int]
KernelName = Callable[[Process, int], str]


@dataclass(frozen=True, slots=True)
class _Held:
    """An allocation that lives, and who made it."""

    stack: Stack
    size: int
    since_ns: int


class _Observed:
    """What is known of one program's stacks."""

    def __init__(self, process: Process, namer: StackNamer) -> None:
        self.process = process
        self.namer = namer
        self.held: dict[int, _Held] = {}


class ProfileReceiver:
    """Takes stacks on the sites of the counts, and on the CPUs."""

    def __init__(
        self,
        processes: ProcessTable,
        types: Sequence[ProfileType],
        *,
        capturing: BpfMap,
        kernel_name: KernelName,
        only: Iterable[int] = (),
        policy: Policy = "fast",
        allow_single_step: bool = True,
        link: LinkMode = "auto",
        cpu_hz: int = 49,
        stacks_per_second: int = 400,
        cache: TableCache | None = None,
    ) -> None:
        """Load the programs; UnsupportedKernelError below kernel 5.17."""
        if not probe().bpf_loop:
            raise UnsupportedKernelError(
                "this kernel cannot walk stacks: bpf_loop is missing; run 5.17 or later (metrics work from 5.10)"
            )
        self._processes = processes
        self._types = tuple(types)
        self._hooks = tuple(hooks_for(types))
        self._kernel_name = kernel_name
        self._policy: Policy = policy
        self._allow_single_step = allow_single_step
        only = tuple(only)
        self._object = BpfObject("profile")
        self._linker = ObjectLinker(self._object, link)
        try:
            self._load(capturing, only, stacks_per_second)
        except BaseException:
            self._object.close()
            raise
        self.loader = UnwindLoader(
            self._object.map("unwind_rows"),
            self._object.map("unwind_mappings"),
            self._object.map("unwind_processes"),
            cache,
        )
        self._files = FileNames()
        self._lock = threading.RLock()
        self._libraries: dict[FileId, AttachedLibrary] = {}
        self._observed: dict[Program, _Observed] = {}
        self._builders: dict[tuple[Process, str], ProfileBuilder] = {}
        self._started_ns = time.time_ns()
        self._names_since = time.monotonic()
        self.complete = 0
        self.truncated: dict[int, int] = {}
        """Stacks that end early, by the number of the reason."""
        self._ring = RingReader(self._object.map("samples"), self._take)
        self._cpu = CpuSampler(self._object.programs()["profile_cpu"], cpu_hz) if CPU in types else None

    def _load(self, capturing: BpfMap, only: tuple[int, ...], stacks_per_second: int) -> None:
        self._object.set_variables(
            {
                "observe_all": 0 if only else 1,
                **abi.pid_namespace(),
                "stacks_per_second": stacks_per_second,
                # Captures are counted by the other object: look each time.
                "captures": 1,
            }
        )
        self._object.share_map("capturing", capturing)
        for unused in ("rows", "overflow"):
            self._object.configure_map(unused, max_entries=1)
        self._object.load(attach_type=lambda name: None if name == "profile_cpu" else self._linker.attach_type(name))
        targets = self._object.map("targets")
        for pid in only:
            targets.put(pid.to_bytes(4, "little"), b"\1")

    def close(self) -> None:
        """Detach and unload; idempotent."""
        if self._cpu is not None:
            self._cpu.close()
        for library in self._libraries.values():
            library.close()
        self._libraries.clear()
        self._ring.close()
        self.loader.close()
        for observed in self._observed.values():
            observed.namer.close()
        self._files.close()
        self._object.close()

    def attach(self, library: Library, opener: str) -> None:
        """Place the programs in a driver, once."""
        if library.kind is not LibraryKind.DRIVER or library.id in self._libraries or not self._hooks:
            return
        try:
            with ElfFile(opener) as elf:
                probes = plan(elf, self._hooks, policy=self._policy, allow_single_step=self._allow_single_step)
            self._libraries[library.id] = AttachedLibrary(library.path, probes, self._linker, opener)
        except (ElfError, OSError) as e:
            _log.warning("cannot profile %s: %s", library.path, e)

    def observe(self, pid: int) -> None:
        """Make a process's stacks walkable; again after it mapped more code."""
        self.loader.watch(pid)

    def start(self) -> None:
        """Begin anew: what was sampled before is dropped."""
        self._ring.drain()
        with self._lock:
            self._builders.clear()
            self._started_ns = time.time_ns()

    def profiles(self, *, last: bool = False) -> list[Profile]:
        """Return what was sampled since the last call, one profile a process and type.

        With `last`, what the calls after the last stack of each thread add up to is there too, under a marker.
        """
        self._ring.drain()
        now = time.time_ns()
        with self._lock:
            if last:
                self._add_remainders()
            builders, self._builders = self._builders, {}
            for observed in self._observed.values():
                self._add_held(builders, observed)
            start, self._started_ns = self._started_ns, now
        return [b.build(now) for b in builders.values() if start <= now]

    def losses(self) -> int:
        """Return how many samples found no room."""
        value = self._object.map("losses").get(abi.Loss.EVENTS_FULL.to_bytes(4, "little")) or b""
        return sum(int.from_bytes(value[i : i + 8], "little") for i in range(0, len(value), 8))

    def _take(self, record: bytes) -> None:
        head = abi.SAMPLE.unpack_from(record)
        kind, tgid, incarnation, _tid, when_ns, value, _count, subject, function, stop, frames = head
        with self._lock:
            observed = self._of((tgid, incarnation))
            if kind == abi.SampleType.FREE:
                self._freed(observed, subject, when_ns)
                return
            if observed is None:
                return
            if stop == COMPLETE:
                self.complete += 1
            else:
                self.truncated[stop] = self.truncated.get(stop, 0) + 1
            self._refresh_names()
            raw = record[abi.SAMPLE.size : abi.SAMPLE.size + 16 * frames]
            stack = observed.namer.stack(raw, stop)
            self._add(observed, kind, stack, value, subject, function, when_ns)

    def _add(
        self,
        observed: _Observed,
        kind: int,
        stack: Stack,
        value: int,
        subject: int,
        function: int,
        when_ns: int,
    ) -> None:
        process = observed.process
        match kind:
            case abi.SampleType.LAUNCH:
                name = self._kernel_name(process, subject) if FUNCTIONS[function] != "cuGraphLaunch" else "CUDA graph"
                self._put(process, GPU_LAUNCHES, (Frame(FrameKind.CUDA, demangle(name)), *stack), value)
            case abi.SampleType.WAIT:
                self._put(process, GPU_WAIT, (Frame(FrameKind.NATIVE, FUNCTIONS[function]), *stack), value)
            case abi.SampleType.COPY:
                if not stack or stack[0].function != FUNCTIONS[function]:
                    stack = (Frame(FrameKind.NATIVE, FUNCTIONS[function]), *stack)
                self._put(process, GPU_COPY, stack, value)
            case abi.SampleType.ALLOC:
                stack = (Frame(FrameKind.NATIVE, FUNCTIONS[function]), *stack)
                self._put(process, GPU_ALLOC_SPACE, stack, value)
                observed.held[subject] = _Held(stack, value, when_ns)
            case abi.SampleType.CPU:
                leaf = (Frame(FrameKind.KERNEL, "[kernel]"),) if subject else ()
                self._put(process, CPU, (*leaf, *stack), value)

    def _put(self, process: Process, kind: ProfileType, stack: Stack, value: int) -> None:
        for wanted in self._types:
            if wanted.name == kind.name and wanted.period_type == kind.period_type:
                self._builder(self._builders, process, wanted).add(stack, value)

    def _builder(
        self, builders: dict[tuple[Process, str], ProfileBuilder], process: Process, kind: ProfileType
    ) -> ProfileBuilder:
        key = (process, kind.name)
        if key not in builders:
            builders[key] = ProfileBuilder(kind, process.resource, self._started_ns)
        return builders[key]

    def _freed(self, observed: _Observed | None, address: int, when_ns: int) -> None:
        if observed is None:
            return
        held = observed.held.get(address)
        if held is not None and held.since_ns <= when_ns:
            del observed.held[address]

    def _add_held(self, builders: dict[tuple[Process, str], ProfileBuilder], observed: _Observed) -> None:
        if GPU_INUSE_SPACE not in self._types or observed.process.ended:
            return
        for held in observed.held.values():
            self._builder(builders, observed.process, GPU_INUSE_SPACE).add(held.stack, held.size)

    def _add_remainders(self) -> None:
        """Count what no stack stands for yet."""
        keys, values = self._object.map("samplers").read(abi.SAMPLER_KEY, abi.SAMPLER)
        for i in np.nonzero(values["value"])[0].tolist():
            kind = _SAMPLED.get(int(keys[i]["type"]))
            tgid = int(keys[i]["pid_tgid"]) >> 32
            process = next((o.process for (pid, _), o in self._observed.items() if pid == tgid), None)
            if kind is not None and process is not None:
                self._put(process, kind, (marker("[not sampled]"),), int(values[i]["value"]))

    def _of(self, program: Program) -> _Observed | None:
        observed = self._observed.get(program)
        if observed is None:
            walked = self.loader.process(program[0])
            if walked is None:
                return None
            process = self._processes.owner(*program)
            observed = self._observed[program] = _Observed(process, StackNamer(walked, self._files))
        return observed

    def _refresh_names(self) -> None:
        now = time.monotonic()
        if now - self._names_since > _NAMES_FOR_S:
            self._names_since = now
            for observed in self._observed.values():
                observed.namer.forget_python()
