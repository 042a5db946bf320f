"""What do stacks add up to? One profile a process and type, each exact in its total."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ... import abi
from ...abi import SampleType
from ...demangle.names import demangle
from ...discovery.processes import Process
from ...probes.table import FUNCTIONS
from ...program_id import ProgramId
from ...signals.profiles import (
    CPU,
    GPU_ALLOC_SPACE,
    GPU_COPY,
    GPU_INUSE_SPACE,
    GPU_LAUNCHES,
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
    Stack,
    marker,
)
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
    function: int
    stop: int
    frames: int

    @classmethod
    def read(cls, record: bytes) -> StackSample:
        """Read a record's head."""
        return cls._make(abi.SAMPLE.unpack_from(record))

    @property
    def program(self) -> ProgramId:
        return ProgramId(self.tgid, self.exec_id)


def sample_size(address: int) -> int:
    """Return how many bytes of the record at an address say something."""
    frames = ctypes.c_uint32.from_address(address + abi.SAMPLE.size - 4).value
    return abi.SAMPLE.size + abi.FRAME_SIZE * frames


class ProfileSums:
    """Profiles in the making. Owned by one thread."""

    def __init__(self, types: Sequence[ProfileType], kernel_name: KernelName) -> None:
        self._types = {t.name: t for t in types}
        self._kernel_name = kernel_name
        self._builders: dict[tuple[Process, str], ProfileBuilder] = {}
        self._launches: dict[tuple[Process, int, Stack], int] = {}
        """By the kernel's handle: its name may come after its first launches."""
        self._begin()

    def clear(self) -> None:
        """Begin anew."""
        self._builders.clear()
        self._launches.clear()
        self._begin()

    def add(self, process: Process, held: HeldMemory, sample: StackSample, stack: Stack) -> None:
        """Add what one stack stands for."""
        match sample.kind:
            case SampleType.LAUNCH if FUNCTIONS[sample.function] == GRAPH_LAUNCH:
                self._put(process, GPU_LAUNCHES, (GRAPH, *stack), sample.value)
            case SampleType.LAUNCH:
                key = (process, sample.subject, stack)
                self._launches[key] = self._launches.get(key, 0) + sample.value
            case SampleType.WAIT:
                self._put(process, GPU_WAIT, below(sample, stack), sample.value)
            case SampleType.COPY:
                self._put(process, GPU_COPY, below(sample, stack), sample.value)
            case SampleType.ALLOC:
                stack = below(sample, stack)
                self._put(process, GPU_ALLOC_SPACE, stack, sample.value)
                if GPU_INUSE_SPACE.name in self._types:
                    held.allocated(sample.subject, HeldAllocation(stack, sample.value, sample.when_ns))
            case SampleType.TENSOR:
                self._put(process, TENSOR_ALLOC_SPACE, stack, sample.value)
            case SampleType.CPU:
                self._put(process, CPU, (_KERNEL, *stack) if sample.subject else stack, sample.value)
            case SampleType.OFF_CPU:
                self._put(process, OFF_CPU, stack, sample.value)

    def add_remainder(self, process: Process, kind: int, value: int) -> None:
        """Add what no stack of one type stands for."""
        self._put(process, _SAMPLED[kind], (NOT_SAMPLED,), value)

    def add_held(self, process: Process, held: Iterable[HeldAllocation]) -> None:
        """Add the memory that a process holds now."""
        for allocation in held:
            self._put(process, GPU_INUSE_SPACE, allocation.stack, allocation.size_bytes)

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
            owner, handle, stack = key
            leaf = Frame(FrameKind.CUDA, demangle(self._kernel_name(owner, handle)))
            self._put(owner, GPU_LAUNCHES, (leaf, *stack), self._launches.pop(key))

    def take(self) -> list[Profile]:
        """Return the profiles, one a process and type, and begin the next."""
        self.name_launches()
        # How long it took is not the clock's to say, which may be set meanwhile.
        end_ns = self._started_ns + time.monotonic_ns() - self._began_ns
        builders, self._builders = self._builders, {}
        self._begin()
        return [b.build(end_ns) for (_, name), b in builders.items() if name in self._types]

    def _begin(self) -> None:
        self._started_ns, self._began_ns = time.time_ns(), time.monotonic_ns()

    def _put(self, process: Process, kind: ProfileType, stack: Stack, value: int) -> None:
        wanted = self._types.get(kind.name)
        if wanted is None or not value:
            return
        key = (process, kind.name)
        if key not in self._builders:
            self._builders[key] = ProfileBuilder(wanted, process.resource, self._started_ns)
        self._builders[key].add(stack, value)


def below(sample: StackSample, stack: Stack) -> Stack:
    """Return the stack with the called function as its leaf, where it is not that already."""
    called = FUNCTIONS[sample.function]
    return stack if stack and stack[0].function == called else (Frame(FrameKind.NATIVE, called), *stack)
