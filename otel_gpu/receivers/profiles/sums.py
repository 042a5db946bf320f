"""What do stacks add up to? One profile a process and type, each exact in its total."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...bpf.abi.samples import SampleType
from ...bpf.abi.stacks import FRAME, STACK_SAMPLE
from ...bpf.records import names_before, offset_of, struct_of
from ...components.counting.request_spans import RequestSpans, WorkOwner
from ...discovery.processes import Process
from ...discovery.program_id import ProgramId
from ...probes.table import FUNCTIONS
from ...signals.profiles import (
    CPU,
    GPU_ALLOC_SPACE,
    GPU_COPY,
    GPU_INUSE_SPACE,
    GPU_LAUNCHES,
    GPU_LEAKED_SPACE,
    GPU_MEMORY_VIEWS,
    GPU_PEAK_SPACE,
    GPU_TIME_AT_LEAST,
    GPU_TIME_AT_MOST,
    GPU_TIME_LOWER,
    GPU_TIME_UPPER,
    GPU_WAIT,
    OFF_CPU,
    TENSOR_ALLOC_SPACE,
    TENSOR_INUSE_SPACE,
    Frame,
    FrameKind,
    Profile,
    ProfileBuilder,
    ProfileType,
    SpanLink,
    Stack,
    marker,
)
from ...stacks.demangle.names import demangle
from .held_memory import HeldAllocation, HeldMemory

NOT_SAMPLED = marker("[not sampled]")
_KERNEL = Frame(FrameKind.KERNEL, "[kernel]")
GRAPH_LAUNCH = "cuGraphLaunch"
GRAPH = Frame(FrameKind.CUDA, "CUDA graph")
_SAMPLED = {
    int(SampleType.LAUNCH): GPU_LAUNCHES,
    int(SampleType.WAIT): GPU_WAIT,
    int(SampleType.COPY): GPU_COPY,
    int(SampleType.ALLOC): GPU_ALLOC_SPACE,
    int(SampleType.CPU): CPU,
    int(SampleType.OFF_CPU): OFF_CPU,
    int(SampleType.TENSOR): TENSOR_ALLOC_SPACE,
}


class SiteTime(NamedTuple):
    """How long GPUs worked for what one call site submitted."""

    stack: Stack
    lower_ns: int
    """Its share of the lower bound of all sites; an estimate, as the next."""
    upper_ns: int
    at_least_ns: int
    """Bounds of its own."""
    at_most_ns: int


_VIEWS = tuple(view.name for view in GPU_MEMORY_VIEWS)
_MOST_UNDECIDED = 65_536
"""Stacks whose owner is not decided yet; those beyond have none."""
_NO_SPAN = bytes(8)
SAMPLE_HEAD = struct_of(STACK_SAMPLE, *names_before(STACK_SAMPLE, "frame"), as_bytes=("trace", "span"))
"""What a record says before its frames. Behind these there are addresses, as frames, in code that has no table either."""
FRAME_SIZE = FRAME.itemsize
_AHEAD_AT, _FRAMES_AT = offset_of(STACK_SAMPLE, "ahead"), offset_of(STACK_SAMPLE, "frames")

Owner = SpanLink | WorkOwner
"""The span that owns a piece of work, or who knows it later."""

KernelName = Callable[[Process, int], str]


class StackSample(NamedTuple):
    """One record of the kernel, without its frames: struct stack_sample of ebpf/abi/."""

    kind: int
    tgid: int
    exec_id: int
    tid: int
    when_ns: int
    value: int
    calls: int
    subject: int
    latest: int
    """What of the value is the call's whose stack it is; the rest is of calls before it, which may have had other owners."""
    request: int
    holder: int
    trace_id: bytes
    span_id: bytes
    function: int
    stop: int
    ahead: int
    """How many return addresses stand behind the frames, of code that has no table either."""
    frames: int

    @classmethod
    def read(cls, record: bytes) -> StackSample:
        """Read a record's head."""
        return cls._make(SAMPLE_HEAD.unpack_from(record))

    @property
    def program(self) -> ProgramId:
        return ProgramId(self.tgid, self.exec_id)

    @property
    def owner(self) -> Owner | None:
        """Return whose the latest call is: the program's own span goes before the request's."""
        if self.span_id != _NO_SPAN:
            return SpanLink(self.trace_id, self.span_id)
        return WorkOwner(self.request, self.holder) if self.request else None


def sample_size(address: int) -> int:
    """Return how many bytes of the record at an address say something."""
    frames = ctypes.c_uint32.from_address(address + _FRAMES_AT).value
    ahead = ctypes.c_uint8.from_address(address + _AHEAD_AT).value
    return SAMPLE_HEAD.size + FRAME_SIZE * (frames + ahead)


class ProfileSums:
    """Profiles in the making. Owned by one thread."""

    def __init__(
        self, types: Sequence[ProfileType], kernel_name: KernelName, request_spans: RequestSpans | None = None
    ) -> None:
        self._types = {t.name: t for t in types}
        self._kernel_name = kernel_name
        self._request_spans = request_spans or RequestSpans()
        self._builders: dict[tuple[Process, str], ProfileBuilder] = {}
        self._launches: dict[tuple[Process, int, Stack, Owner | None], int] = {}
        """By the kernel's handle: its name may come after its first launches."""
        self._undecided: dict[tuple[Process, ProfileType, Stack, WorkOwner], int] = {}
        """Of requests whose spans are asked for when the profile is taken."""
        self._begin()

    def clear(self) -> None:
        """Begin anew."""
        self._builders.clear()
        self._launches.clear()
        self._undecided.clear()
        self._begin()

    def add(self, process: Process, held: HeldMemory, sample: StackSample, stack: Stack) -> None:
        """Add what one stack stands for."""
        match sample.kind:
            case SampleType.LAUNCH if FUNCTIONS[sample.function] == GRAPH_LAUNCH:
                self._add(process, GPU_LAUNCHES, (GRAPH, *stack), sample)
            case SampleType.LAUNCH:
                for value, owner in _parts(sample):
                    key = (process, sample.subject, stack, owner)
                    self._launches[key] = self._launches.get(key, 0) + value
            case SampleType.WAIT:
                self._add(process, GPU_WAIT, below(sample, stack), sample)
            case SampleType.COPY:
                self._add(process, GPU_COPY, below(sample, stack), sample)
            case SampleType.ALLOC:
                stack = below(sample, stack)
                self._add(process, GPU_ALLOC_SPACE, stack, sample)
                if not self._types.keys().isdisjoint(_VIEWS):
                    held.allocated(sample.subject, HeldAllocation(stack, sample.value, sample.when_ns))
            case SampleType.TENSOR:
                self._add(process, TENSOR_ALLOC_SPACE, stack, sample)
            case SampleType.CPU:
                self._add(process, CPU, (_KERNEL, *stack) if sample.subject else stack, sample)
            case SampleType.OFF_CPU:
                self._add(process, OFF_CPU, stack, sample)

    def add_remainder(self, process: Process, kind: int, value: int) -> None:
        """Add what no stack of one type stands for."""
        self._put(process, _SAMPLED[kind], (NOT_SAMPLED,), value)

    def add_held(self, process: Process, held: HeldMemory, since_ns: int) -> None:
        """Add the memory that a process holds now, or did at its end; has held at most, and allocated since then and not freed."""
        if not process.ended:
            self._put_all(process, GPU_INUSE_SPACE, held)
        self._put_all(process, GPU_PEAK_SPACE, held.at_peak())
        self._put_all(process, GPU_LEAKED_SPACE, (one for one in held if one.since_ns >= since_ns))

    def _put_all(self, process: Process, kind: ProfileType, allocations: Iterable[HeldAllocation]) -> None:
        if kind.name in self._types:
            for allocation in allocations:
                self._put(process, kind, allocation.stack, allocation.size_bytes)

    def add_tensors(self, process: Process, stack: Stack, size_bytes: int) -> None:
        """Add tensors that live now."""
        self._put(process, TENSOR_INUSE_SPACE, stack, size_bytes)

    def add_time(self, process: Process, times: Iterable[SiteTime]) -> None:
        """Add the time that GPUs worked for what each site submitted."""
        for site in times:
            self._put(process, GPU_TIME_LOWER, site.stack, site.lower_ns)
            self._put(process, GPU_TIME_UPPER, site.stack, site.upper_ns)
            self._put(process, GPU_TIME_AT_LEAST, site.stack, site.at_least_ns)
            self._put(process, GPU_TIME_AT_MOST, site.stack, site.at_most_ns)

    def name_launches(self, process: Process | None = None) -> None:
        """Put names in place of kernels' handles, of one process or of all."""
        for key in [k for k in self._launches if process is None or k[0] is process]:
            launching, handle, stack, owner = key
            leaf = Frame(FrameKind.CUDA, demangle(self._kernel_name(launching, handle)))
            self._put(launching, GPU_LAUNCHES, (leaf, *stack), self._launches.pop(key), owner)

    def take(self, *, last: bool = False) -> list[Profile]:
        """Return the profiles, one a process and type, and begin the next.

        What is of a request that goes on, and not decided yet, is in the next; with `last` it is nobody's.
        """
        self.name_launches()
        self._link(last=last)
        # How long it took is not the clock's to say, which may be set meanwhile.
        end_ns = self._started_ns + time.monotonic_ns() - self._began_ns
        builders, self._builders = self._builders, {}
        self._begin()
        return [b.build(end_ns) for (_, name), b in builders.items() if name in self._types]

    def _begin(self) -> None:
        self._started_ns, self._began_ns = time.time_ns(), time.monotonic_ns()

    def _link(self, *, last: bool) -> None:
        """Put spans in place of requests, where they are decided."""
        undecided, self._undecided = self._undecided, {}
        found = self._request_spans.find({owner for *_, owner in undecided})
        for (process, kind, stack, owner), value in undecided.items():
            if owner in found or last:
                self._put(process, kind, stack, value, found.get(owner))
            else:
                self._put(process, kind, stack, value, owner)

    def _add(self, process: Process, kind: ProfileType, stack: Stack, sample: StackSample) -> None:
        for value, owner in _parts(sample):
            self._put(process, kind, stack, value, owner)

    def _put(self, process: Process, kind: ProfileType, stack: Stack, value: int, owner: Owner | None = None) -> None:
        wanted = self._types.get(kind.name)
        if wanted is None or not value:
            return
        if isinstance(owner, WorkOwner):
            at = (process, kind, stack, owner)
            if at in self._undecided or len(self._undecided) < _MOST_UNDECIDED:
                self._undecided[at] = self._undecided.get(at, 0) + value
                return
            owner = None
        key = (process, kind.name)
        if key not in self._builders:
            self._builders[key] = ProfileBuilder(wanted, process.resource, self._started_ns)
        self._builders[key].add(stack, value, link=owner)


def _parts(sample: StackSample) -> list[tuple[int, Owner | None]]:
    """Return what is known to be its owner's, and what stands for calls that may have had others."""
    owner = sample.owner if sample.latest else None
    if owner is None or sample.latest >= sample.value:
        return [(sample.value, owner)]
    return [(sample.latest, owner), (sample.value - sample.latest, None)]


def below(sample: StackSample, stack: Stack) -> Stack:
    """Return the stack with the called function as its leaf, where it is not that already."""
    called = FUNCTIONS[sample.function]
    return stack if stack and stack[0].function == called else (Frame(FrameKind.NATIVE, called), *stack)
