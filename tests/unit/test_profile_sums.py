from __future__ import annotations

import time

import pytest

from otel_gpu.bpf.abi.samples import SampleType
from otel_gpu.components.counting.request_spans import RequestSpans, WorkOwner
from otel_gpu.discovery.processes import Process
from otel_gpu.probes.cookies import TENSOR_FUNCTION
from otel_gpu.probes.table import FUNCTIONS
from otel_gpu.receivers.profiles.held_memory import HeldAllocation, HeldMemory
from otel_gpu.receivers.profiles.sums import NOT_SAMPLED, SAMPLE_HEAD, ProfileSums, SiteTime, StackSample
from otel_gpu.signals.metrics import Resource, attributes
from otel_gpu.signals.profiles import (
    CPU,
    GPU_ALLOC_SPACE,
    GPU_COPY,
    GPU_INUSE_SPACE,
    GPU_LAUNCHES,
    GPU_TIME_AT_MOST,
    GPU_TIME_LOWER,
    GPU_TIME_UPPER,
    GPU_WAIT,
    TENSOR_ALLOC_SPACE,
    TENSOR_INUSE_SPACE,
    Frame,
    FrameKind,
    Profile,
    ProfileType,
    SpanLink,
)

TRAIN = (Frame(FrameKind.NATIVE, "gemm"), Frame(FrameKind.CPYTHON, "train"))
EVERY = (
    GPU_LAUNCHES,
    GPU_WAIT,
    GPU_COPY,
    GPU_ALLOC_SPACE,
    GPU_INUSE_SPACE,
    TENSOR_ALLOC_SPACE,
    TENSOR_INUSE_SPACE,
    CPU,
)


def process(pid: int = 7) -> Process:
    return Process(pid, Resource(attributes({"process.pid": pid})), start_ticks=1)


def sample(kind: SampleType, value: int, *, function: str = "cuLaunchKernel", subject: int = 0) -> StackSample:
    number = FUNCTIONS.index(function) if function else TENSOR_FUNCTION
    return StackSample.read(
        SAMPLE_HEAD.pack(kind, 7, 1, 8, 100, value, 1, subject, value, 0, 0, b"", b"", number, 1, 0, 0)
    )


def by_type(sums: ProfileSums) -> dict[str, Profile]:
    return {p.type.name: p for p in sums.take()}


@pytest.mark.parametrize("set_by_s", [-3600, 3600])
def test_how_long_a_profile_took_is_not_the_clocks_to_say(set_by_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before_ns = time.time_ns()
    sums = ProfileSums(EVERY, lambda _process, _handle: "")
    sums.add(process(), HeldMemory(), sample(SampleType.WAIT, 3), TRAIN)
    began_ns = time.monotonic_ns()
    monkeypatch.setattr(time, "time_ns", lambda: before_ns + set_by_s * 1_000_000_000)

    (first,) = sums.take()
    sums.add(process(), HeldMemory(), sample(SampleType.WAIT, 3), TRAIN)
    (second,) = sums.take()

    assert first.start_ns >= before_ns
    assert 0 < first.duration_ns <= time.monotonic_ns() - began_ns + 60_000_000_000
    assert second.start_ns == before_ns + set_by_s * 1_000_000_000
    assert 0 < second.duration_ns < 60_000_000_000


def test_launches_have_the_kernel_as_their_leaf_however_late_its_name_comes() -> None:
    names: dict[int, str] = {}
    sums = ProfileSums(EVERY, lambda _process, handle: names[handle])
    target = process()
    sums.add(target, HeldMemory(), sample(SampleType.LAUNCH, 3, subject=0xA), TRAIN)
    sums.add(target, HeldMemory(), sample(SampleType.LAUNCH, 4, subject=0xA), TRAIN)
    names[0xA] = "_Z4fillPf"

    launches = by_type(sums)["gpu_launches"]

    assert [(s.stack, s.value) for s in launches.samples] == [((Frame(FrameKind.CUDA, "fill(float*)"), *TRAIN), 7)]


def test_names_of_an_ended_process_are_asked_for_before_they_are_forgotten() -> None:
    names = {0xA: "axpy"}
    sums = ProfileSums(EVERY, lambda _process, handle: names[handle])
    ended, other = process(7), process(8)
    for owner in (ended, other):
        sums.add(owner, HeldMemory(), sample(SampleType.LAUNCH, 1, subject=0xA), TRAIN)
    sums.name_launches(ended)
    names[0xA] = "another"

    leaves = {p.resource: {s.stack[0].function for s in p.samples} for p in sums.take()}

    assert leaves == {ended.resource: {"axpy"}, other.resource: {"another"}}


def test_graphs_are_launched_as_graphs() -> None:
    sums = ProfileSums(EVERY, lambda _process, _handle: "never asked")
    sums.add(process(), HeldMemory(), sample(SampleType.LAUNCH, 2, function="cuGraphLaunch"), TRAIN)

    (launched,) = by_type(sums)["gpu_launches"].samples

    assert (launched.stack[0].function, launched.value) == ("CUDA graph", 2)


def test_the_called_function_is_the_leaf_once() -> None:
    sums = ProfileSums(EVERY, lambda _process, _handle: "")
    called = Frame(FrameKind.NATIVE, "cuMemcpyHtoD")
    for stack in (TRAIN, (called, *TRAIN)):
        sums.add(process(), HeldMemory(), sample(SampleType.COPY, 10, function="cuMemcpyHtoD"), stack)

    copied = [s for p in sums.take() for s in p.samples]

    assert {s.stack for s in copied} == {(called, *TRAIN)}


def owned(value: int, latest: int, *, request: int = 0, holder: int = 0, span: bytes = b"") -> StackSample:
    """Return a sample of waits; `latest` is what of its value the call did whose stack it is."""
    taken = sample(SampleType.WAIT, value, function="cuCtxSynchronize")
    return taken._replace(
        latest=latest,
        request=request,
        holder=holder,
        trace_id=b"t" * 16 if span else bytes(16),
        span_id=span or bytes(8),
    )


def test_only_what_a_stacks_own_call_did_is_its_owners() -> None:
    sums, link = ProfileSums(EVERY, lambda _process, _handle: ""), SpanLink(b"t" * 16, b"s" * 8)
    target = process()
    sums.add(target, HeldMemory(), owned(10, 3, span=b"s" * 8), TRAIN)
    sums.add(target, HeldMemory(), owned(4, 4, span=b"s" * 8, request=7), TRAIN)
    sums.add(target, HeldMemory(), owned(5, 0, span=b"s" * 8), TRAIN)

    (waits,) = by_type(sums).values()

    assert {s.link: s.value for s in waits.samples} == {link: 7, None: 12}


def test_what_is_not_decided_is_in_the_next_profile_and_in_the_last_one_nobodys() -> None:
    spans, link = RequestSpans(), SpanLink(b"t" * 16, b"s" * 8)
    known: dict[WorkOwner, SpanLink | None] = {WorkOwner(1, 0): link, WorkOwner(2, 0): None}
    spans.answer_with(lambda owners: {owner: known[owner] for owner in owners if owner in known})
    sums = ProfileSums(EVERY, lambda _process, _handle: "", spans)
    target = process()
    for request, holder in ((1, 0), (1, 9), (2, 0), (3, 9)):
        sums.add(target, HeldMemory(), owned(request, request, request=request, holder=holder), TRAIN)

    (first,) = by_type(sums).values()
    known[WorkOwner(1, 9)] = link
    (second,) = by_type(sums).values()
    (last,) = sums.take(last=True)

    assert {s.link: s.value for s in first.samples} == {link: 1, None: 2}
    assert {s.link: s.value for s in second.samples} == {link: 1}
    assert {s.link: s.value for s in last.samples} == {None: 3}
    assert sums.take() == []


def test_nobody_who_follows_requests_is_no_owner() -> None:
    sums = ProfileSums(EVERY, lambda _process, _handle: "")
    sums.add(process(), HeldMemory(), owned(3, 3, request=1, holder=2), TRAIN)

    (waits,) = by_type(sums).values()

    assert [(s.link, s.value) for s in waits.samples] == [(None, 3)]


def test_what_was_allocated_is_held_until_it_is_freed() -> None:
    sums, held, target = ProfileSums(EVERY, lambda _process, _handle: ""), HeldMemory(), process()
    sums.add(target, held, sample(SampleType.ALLOC, 512, function="cuMemAlloc", subject=0x1000), TRAIN)
    sums.add_held(target, held, 0)
    first = by_type(sums)
    held.freed(0x1000, when_ns=200)
    sums.add_held(target, held, 0)
    second = by_type(sums)

    assert (first["gpu_alloc_space"].total, first["gpu_inuse_space"].total) == (512, 512)
    assert second == {}


def test_a_free_that_began_earlier_is_of_an_earlier_allocation() -> None:
    held = HeldMemory()
    held.allocated(0x1000, HeldAllocation(TRAIN, 512, since_ns=100))

    held.freed(0x1000, when_ns=99)
    held.freed(0x2000, when_ns=200)

    assert [h.size_bytes for h in held] == [512]


def test_tensors_are_apart_from_the_drivers_memory() -> None:
    sums, target = ProfileSums(EVERY, lambda _process, _handle: ""), process()
    sums.add(target, HeldMemory(), sample(SampleType.TENSOR, 64, function=""), TRAIN)
    sums.add_tensors(target, TRAIN, 32)

    found = by_type(sums)

    assert {name: p.total for name, p in found.items()} == {"tensor_alloc_space": 64, "tensor_inuse_space": 32}


def test_remainders_have_a_marker_for_a_stack() -> None:
    sums, target = ProfileSums(EVERY, lambda _process, _handle: ""), process()
    sums.add_remainder(target, SampleType.WAIT, 99)

    (remainder,) = by_type(sums)["gpu_wait"].samples

    assert (remainder.stack, remainder.value) == ((NOT_SAMPLED,), 99)


def test_the_kernels_own_time_has_a_frame() -> None:
    sums, target = ProfileSums(EVERY, lambda _process, _handle: ""), process()
    for in_kernel in (0, 1):
        sums.add(target, HeldMemory(), sample(SampleType.CPU, 1, subject=in_kernel), TRAIN)

    assert {s.stack[0].kind for s in by_type(sums)["samples"].samples} == {FrameKind.NATIVE, FrameKind.KERNEL}


def test_only_what_was_asked_for_is_added_up() -> None:
    wanted: tuple[ProfileType, ...] = (GPU_WAIT,)
    sums, held = ProfileSums(wanted, lambda _process, _handle: ""), HeldMemory()
    sums.add(process(), held, sample(SampleType.ALLOC, 512, function="cuMemAlloc", subject=0x1000), TRAIN)
    sums.add(process(), held, sample(SampleType.WAIT, 5, function="cuCtxSynchronize"), TRAIN)

    assert {name: p.total for name, p in by_type(sums).items()} == {"gpu_wait": 5}
    assert list(held) == []


def test_each_take_begins_anew() -> None:
    sums = ProfileSums(EVERY, lambda _process, _handle: "")
    sums.add(process(), HeldMemory(), sample(SampleType.WAIT, 5, function="cuCtxSynchronize"), TRAIN)
    sums.clear()
    assert sums.take() == []
    sums.add(process(), HeldMemory(), sample(SampleType.WAIT, 6, function="cuCtxSynchronize"), TRAIN)

    assert [p.total for p in sums.take()] == [6]
    assert sums.take() == []


def test_what_a_site_had_of_the_gpu_is_in_four_profiles() -> None:
    sums = ProfileSums((GPU_TIME_LOWER, GPU_TIME_UPPER, GPU_TIME_AT_MOST), lambda _process, _handle: "")

    sums.add_time(process(), [SiteTime(TRAIN, 1, 2, 3, 4), SiteTime(TRAIN, 10, 20, 30, 40)])

    profiles = by_type(sums)
    assert {name: p.total for name, p in profiles.items()} == {
        "gpu_time_lower": 11,
        "gpu_time_upper": 22,
        "gpu_time_at_most": 44,
    }
    assert all(s.stack == TRAIN for p in profiles.values() for s in p.samples)
