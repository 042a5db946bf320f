"""Do samples add up, and do recordings compare?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.signals.profiles import (
    CPU,
    GPU_LAUNCHES,
    OFF_CPU,
    PROFILE_TYPES,
    Frame,
    FrameKind,
    ProfileBuilder,
    SpanLink,
    counterparts,
    difference,
    is_truncated,
    merge,
    truncation,
)
from tests.unit.profile_examples import LINK, START_NS, python, resource, training

stacks = st.lists(st.sampled_from([python(name, line) for name in "abc" for line in (1, 2)]), max_size=4).map(tuple)


@given(st.lists(st.tuples(stacks, st.integers(-5, 5))))
def test_equal_stacks_are_one_sample_and_nothing_is_lost(added):
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)

    for stack, value in added:
        builder.add(stack, value)
    profile = builder.build(START_NS + 1)

    assert len({s.stack for s in profile.samples}) == len(profile.samples)
    assert profile.total == sum(value for _, value in added)
    assert all(s.value for s in profile.samples)


def test_samples_of_other_threads_and_spans_stay_apart():
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)
    stack = (python("f", 1),)

    builder.add(stack, 1)
    builder.add(stack, 2, (("thread.id", 7),))
    builder.add(stack, 3, (("thread.id", 7),), LINK)

    assert sorted(s.value for s in builder.build(START_NS).samples) == [1, 2, 3]


def test_truncated_stacks_are_counted():
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)

    builder.add((python("f", 1), truncation("no unwind row")), 3)
    builder.add((python("f", 1),), 4)
    builder.add((), 5)
    profile = builder.build(START_NS)

    assert (profile.total, profile.truncated) == (12, 3)
    assert not is_truncated(())


def test_merging_spans_the_time_of_its_parts():
    first, second = training(), training(scale=2)

    (merged,) = merge([first, second])

    assert merged.total == first.total + second.total
    assert len(merged.samples) == len(first.samples)
    assert (merged.start_ns, merged.duration_ns) == (first.start_ns, first.duration_ns)


def test_processes_and_types_are_not_merged():
    assert len(merge([training(), training(pid=2), training(CPU)])) == 3


def test_difference_is_after_minus_before():
    before, after = training(skip="copy_kernel"), training(scale=2, skip="fill_kernel")

    change = difference(before, after)

    assert change.total == after.total - before.total
    gone = [s for s in change.samples if s.stack[0].function == "fill_kernel"]
    assert [s.value for s in gone] == [-900]
    assert difference(before, before).samples == ()
    assert difference(None, after).total == after.total
    assert difference(before, None).total == -before.total


def test_two_runs_of_one_program_are_counterparts_although_their_pids_differ():
    (pair,) = counterparts([training(pid=1)], [training(pid=2)])

    assert [p.resource for p in pair if p] == [resource(1), resource(2)]


def test_a_rank_that_was_not_there_before_has_no_counterpart():
    pairs = counterparts([training(pid=1), training(pid=2)], [training(pid=2), training(pid=3)])

    pids = [tuple(dict(p.resource.attributes)["process.pid"] if p else None for p in pair) for pair in pairs]
    assert pids == [(2, 2), (None, 3), (1, None)]


def test_only_off_cpu_has_no_period():
    assert [t.name for t in PROFILE_TYPES.values() if not t.period] == [OFF_CPU.name]
    assert all(bool(t.period_type) == bool(t.period) for t in PROFILE_TYPES.values())
    assert CPU.every(10).period == 10


def test_a_frame_type_is_what_the_semantic_conventions_call_it():
    assert {k.value for k in FrameKind if k.is_code} == {"native", "kernel", "cpython", "cuda"}
    assert hash(Frame(FrameKind.CUDA, "k")) == hash(("cuda", "k", "", 0, None, 0))


@pytest.mark.parametrize("ids", [(b"", b""), (bytes(16), bytes(7)), (bytes(15), bytes(8))])
def test_a_link_has_ids_of_the_right_size(ids):
    with pytest.raises(ValueError):
        SpanLink(*ids)
