"""What is a profile? Stacks with a value each: what flows from receivers to the profile exporters.

A stack is a tuple of frames, **leaf first**. `ProfileBuilder` adds up equal samples, so that a profile
holds every (stack, attributes, link) once. The names of `ProfileType` follow what backends need:
Pyroscope names a profile by its period type and only when the period is not zero, except off-CPU time,
which it knows as `off_cpu/nanoseconds` without a period.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from .metrics import Attributes, Resource
from .structs import Frozen


class FrameKind(str, enum.Enum):
    """What kind of code a frame is; the value is that of semconv's `profile.frame.type`, where it has one.

    A str, so that hashing a frame stays in C: enum's own hash would cost more than the rest of the frame.
    """

    NATIVE = "native"
    KERNEL = "kernel"
    CPYTHON = "cpython"
    CUDA = "cuda"
    MARKER = "marker"
    """Not code: says how two parts of a stack belong together, or what a branch is."""
    TRUNCATED = "truncated"
    """Not code: stands at the root of a stack whose outer frames are unknown, and says why."""

    @property
    def is_code(self) -> bool:
        """Tell whether semconv has a frame type for it."""
        return self is not FrameKind.MARKER and self is not FrameKind.TRUNCATED


class FileMapping(NamedTuple):
    """One segment of a file, as the file's own program headers lay it out, not as one process mapped it.

    `start` and `end` are virtual addresses of the file, so that a profile says the same on every rank and
    run; both are 0 when unknown. A backend symbolises later by build id, so one of the two ids is needed.
    """

    path: str
    build_id: str = ""
    """GNU build id, in hex."""
    htlhash: str = ""
    """The OTel profiler's file id, in hex, for files without a build id."""
    start: int = 0
    end: int = 0
    file_offset: int = 0


class Frame(NamedTuple):
    """One frame; a NamedTuple because stacks are hashed and compared by the million."""

    kind: FrameKind
    function: str = ""
    """Empty when no symbol covers the address: `mapping` and `address` then say what to look up."""
    filename: str = ""
    line: int = 0
    mapping: FileMapping | None = None
    address: int = 0
    """Virtual address in the mapped file (not in the process), 0 when there is none."""


Stack = tuple[Frame, ...]


def marker(text: str) -> Frame:
    """Make a frame that is not code but a word to the reader."""
    return Frame(FrameKind.MARKER, text)


def truncation(reason: str) -> Frame:
    """Make the root frame of a stack that could not be walked to its start."""
    return Frame(FrameKind.TRUNCATED, f"[truncated: {reason}]")


def is_truncated(stack: Stack) -> bool:
    """Tell whether the outer frames of a stack are unknown."""
    return bool(stack) and stack[-1].kind is FrameKind.TRUNCATED


class SpanLink(Frozen):
    """The span a sample belongs to: 16 and 8 bytes."""

    trace_id: bytes
    span_id: bytes

    def __post_init__(self) -> None:
        if len(self.trace_id) != 16 or len(self.span_id) != 8:
            raise ValueError("a trace id has 16 bytes and a span id 8")


class ProfileType(Frozen):
    """The declaration of one profile type: what is summed, in which unit, and what for."""

    name: str
    unit: str
    period_type: str
    period_unit: str
    period: int
    """One sample stands for this much of `period_type`; 0 only where a backend wants none."""
    title: str
    description: str
    stability: str = "development"

    def every(self, period: int) -> ProfileType:
        """Return this type with another period."""
        return replace(self, period=period)


def _type(name: str, unit: str, period_type: str, period_unit: str, title: str, description: str) -> ProfileType:
    return ProfileType(name, unit, period_type, period_unit, 1, title, description)


GPU_LAUNCHES = _type(
    "gpu_launches", "count", "gpu_launches", "count", "Kernel launches", "Kernels launched, by call site and kernel."
)
GPU_TIME_LOWER = _type(
    "gpu_time_lower",
    "nanoseconds",
    "gpu_time",
    "nanoseconds",
    "GPU time, lower bound, split by estimate",
    "The lower bound of the time GPUs worked for the process: a bound in total; split among call sites by an estimate.",
)
GPU_TIME_UPPER = _type(
    "gpu_time_upper",
    "nanoseconds",
    "gpu_time",
    "nanoseconds",
    "GPU time, upper bound, split by estimate",
    "The upper bound of the time GPUs worked for the process: a bound in total; split among call sites by an estimate.",
)
GPU_TIME_AT_LEAST = _type(
    "gpu_time_at_least",
    "nanoseconds",
    "gpu_time",
    "nanoseconds",
    "GPU time, at least, by call site",
    "For how long GPUs certainly did what this call site submitted, and nothing else for the process.",
)
GPU_TIME_AT_MOST = _type(
    "gpu_time_at_most",
    "nanoseconds",
    "gpu_time",
    "nanoseconds",
    "GPU time, at most, by call site",
    "For how long at most GPUs did what this call site submitted. Sites may have shared the same time: the total is "
    "more than all sites took together.",
)
GPU_WAIT = _type(
    "gpu_wait",
    "nanoseconds",
    "gpu_wait",
    "nanoseconds",
    "Host waits for GPU",
    "Time host threads spent in synchronisation and blocking copies.",
)
GPU_COPY = _type("gpu_copy", "bytes", "gpu_copy", "bytes", "Bytes copied", "Bytes copied to, from and between GPUs.")
GPU_ALLOC_SPACE = _type(
    "gpu_alloc_space",
    "bytes",
    "gpu_memory",
    "bytes",
    "GPU memory allocated",
    "Bytes allocated while recording, freed since or not.",
)
GPU_INUSE_SPACE = _type(
    "gpu_inuse_space",
    "bytes",
    "gpu_memory",
    "bytes",
    "GPU memory in use",
    "Bytes allocated and not freed; a free is charged to the allocating stack.",
)
GPU_PEAK_SPACE = _type(
    "gpu_peak_space",
    "bytes",
    "gpu_memory",
    "bytes",
    "GPU memory in use at its peak",
    "Bytes in use when the process held the most of what it had allocated while recording.",
)
GPU_LEAKED_SPACE = _type(
    "gpu_leaked_space",
    "bytes",
    "gpu_memory",
    "bytes",
    "GPU memory not freed",
    "Bytes allocated while recording, and not freed by its end or by that of the process.",
)
TENSOR_ALLOC_SPACE = _type(
    "tensor_alloc_space",
    "bytes",
    "tensor_memory",
    "bytes",
    "Tensor memory allocated",
    "Bytes asked of PyTorch's caching allocator, given back since or not; apart from what it asks of the driver.",
)
TENSOR_INUSE_SPACE = _type(
    "tensor_inuse_space",
    "bytes",
    "tensor_memory",
    "bytes",
    "Tensor memory in use",
    "Bytes asked of PyTorch's caching allocator and not given back, since the recording began.",
)
CPU = ProfileType(
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    1_000_000_000 // 49,
    "On-CPU samples",
    "Samples of threads that run on a CPU; each stands for one period.",
)
OFF_CPU = ProfileType(
    "off_cpu",
    "nanoseconds",
    "",
    "",
    0,
    "Off-CPU time",
    "Time threads spent neither running nor ready to run.",
)

GPU_MEMORY_VIEWS = (GPU_INUSE_SPACE, GPU_PEAK_SPACE, GPU_LEAKED_SPACE)
"""Types of what is held of memory, for which every allocation and every free must be known."""
_STATES = frozenset(t.name for t in (*GPU_MEMORY_VIEWS, TENSOR_INUSE_SPACE))
"""Types of what there is at a moment; all others are of what happens, the more the longer one looks."""
_SAME_LENGTH = 0.01
"""Recordings that differ in length by no more than this share of it are of one length."""

GPU_TIMES = (GPU_TIME_UPPER, GPU_TIME_LOWER, GPU_TIME_AT_LEAST, GPU_TIME_AT_MOST)


def shows_gpu_time(types: Iterable[ProfileType]) -> bool:
    """Say whether one of these types is of the time for which GPUs worked, whatever its period."""
    return not {t.name for t in GPU_TIMES}.isdisjoint(t.name for t in types)


PROFILE_TYPES: dict[str, ProfileType] = {
    t.name: t
    for t in (
        GPU_LAUNCHES,
        GPU_TIME_LOWER,
        GPU_TIME_UPPER,
        GPU_TIME_AT_LEAST,
        GPU_TIME_AT_MOST,
        GPU_WAIT,
        GPU_COPY,
        GPU_ALLOC_SPACE,
        *GPU_MEMORY_VIEWS,
        TENSOR_ALLOC_SPACE,
        TENSOR_INUSE_SPACE,
        CPU,
        OFF_CPU,
    )
}
"""Every profile type that has a name here."""

CHOICES: dict[str, tuple[ProfileType, ...]] = {
    "launch": (GPU_LAUNCHES,),
    "wait": (GPU_WAIT,),
    "alloc": (GPU_ALLOC_SPACE,),
    "inuse": (GPU_INUSE_SPACE,),
    "peak": (GPU_PEAK_SPACE,),
    "leak": (GPU_LEAKED_SPACE,),
    "copy": (GPU_COPY,),
    "gputime": GPU_TIMES,
    "tensor": (TENSOR_INUSE_SPACE, TENSOR_ALLOC_SPACE),
    "cpu": (CPU,),
    "offcpu": (OFF_CPU,),
}
"""What `record --type` can ask for, and `receivers.profile.types` but for those of one recording as a whole, `peak` and `leak`; the
first of each is what is asked about."""


def chosen_types(choices: Iterable[str]) -> tuple[ProfileType, ...]:
    """Return the types of some of CHOICES, in their order, each once."""
    return tuple(dict.fromkeys(kind for choice in choices for kind in CHOICES[choice]))


class Sample(Frozen):
    """How much of the profile's type happened with one stack."""

    stack: Stack
    value: int
    attributes: Attributes = ()
    link: SpanLink | None = None


class Profile(Frozen):
    """Samples of one type of one process over one stretch of time."""

    type: ProfileType
    resource: Resource
    samples: tuple[Sample, ...]
    start_ns: int
    """Unix time."""
    duration_ns: int

    @property
    def total(self) -> int:
        """Sum every sample."""
        return sum(s.value for s in self.samples)

    @property
    def truncated(self) -> int:
        """Sum the samples whose stacks are not whole."""
        return sum(s.value for s in self.samples if is_truncated(s.stack))


SampleKey = tuple[Stack, Attributes, "SpanLink | None"]


class ProfileBuilder:
    """Adds up samples of one type and resource. Owned by one thread."""

    def __init__(self, type: ProfileType, resource: Resource, start_ns: int) -> None:
        self.type = type
        self.resource = resource
        self.start_ns = start_ns
        self._values: dict[SampleKey, int] = {}

    def __len__(self) -> int:
        return len(self._values)

    def add(self, stack: Stack, value: int, attributes: Attributes = (), link: SpanLink | None = None) -> None:
        """Add to what happened with this stack; the value may be negative, as when memory is freed."""
        key = (stack, attributes, link)
        self._values[key] = self._values.get(key, 0) + value

    def build(self, end_ns: int) -> Profile:
        """Return what was added; samples that came to nothing are left out."""
        return _profile(self.type, self.resource, self._values, self.start_ns, max(end_ns - self.start_ns, 0))


def merge(profiles: Iterable[Profile]) -> list[Profile]:
    """Add up profiles of the same type and resource; the order is that of their first appearance."""
    groups: dict[tuple[ProfileType, Resource], list[Profile]] = {}
    for profile in profiles:
        groups.setdefault((profile.type, profile.resource), []).append(profile)
    merged = []
    for (type_, resource), group in groups.items():
        if len(group) == 1:
            merged.append(group[0])
            continue
        values: dict[SampleKey, int] = {}
        for profile in group:
            _add(values, profile, 1, stacks_only=False)
        start = min(p.start_ns for p in group)
        end = max(p.start_ns + p.duration_ns for p in group)
        merged.append(_profile(type_, resource, values, start, end - start))
    return merged


def counterparts(
    before: Iterable[Profile], after: Iterable[Profile]
) -> list[tuple[Profile, Profile] | tuple[None, Profile] | tuple[Profile, None]]:
    """Pair profiles of two recordings by type and resource, or by type when each recording holds one process."""
    old, new = list(before), list(after)
    alone = len({p.resource for p in old}) == 1 == len({p.resource for p in new})
    pairs: list[tuple[Profile, Profile] | tuple[None, Profile] | tuple[Profile, None]] = []
    for profile in new:
        match = next(
            (p for p in old if p.type.name == profile.type.name and (alone or p.resource == profile.resource)), None
        )
        if match is None:
            pairs.append((None, profile))
        else:
            old.remove(match)
            pairs.append((match, profile))
    pairs.extend((p, None) for p in old)
    return pairs


def difference(before: Profile | None, after: Profile | None) -> Profile:
    """Return `after` minus `before`, stack by stack; attributes and links, which never recur, are left out."""
    present = after or before
    if present is None:
        raise ValueError("a difference needs at least one profile")
    values: dict[SampleKey, int] = {}
    for profile, sign in ((after, 1), (before, -1)):
        if profile is not None:
            _add(values, profile, sign, stacks_only=True)
    return _profile(present.type, present.resource, values, present.start_ns, present.duration_ns)


def is_by_rate(before: Profile | None, after: Profile | None) -> bool:
    """Tell whether two recordings are compared by what happened in a second: where they differ in length, and it matters."""
    if before is None or after is None or after.type.name in _STATES:
        return False
    shorter, longer = sorted((before.duration_ns, after.duration_ns))
    return shorter > 0 and longer - shorter > _SAME_LENGTH * longer


def as_long_as(profile: Profile, other: Profile) -> Profile:
    """Return a profile as it would be, had its rate gone on for as long as the other recording took; rounded."""
    samples = (replace(s, value=round(s.value * other.duration_ns / profile.duration_ns)) for s in profile.samples)
    return replace(profile, samples=tuple(s for s in samples if s.value), duration_ns=other.duration_ns)


def _add(values: dict[SampleKey, int], profile: Profile, sign: int, *, stacks_only: bool) -> None:
    for sample in profile.samples:
        key: SampleKey = (sample.stack, (), None) if stacks_only else (sample.stack, sample.attributes, sample.link)
        values[key] = values.get(key, 0) + sign * sample.value


def _profile(
    type_: ProfileType, resource: Resource, values: Mapping[SampleKey, int], start_ns: int, duration_ns: int
) -> Profile:
    samples = tuple(Sample(stack, v, attrs, link) for (stack, attrs, link), v in values.items() if v)
    return Profile(type_, resource, samples, start_ns, duration_ns)
