"""Do sites get what is theirs of a device's time, whatever is known of it?"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.bpf.abi.samples import SampleType
from otel_gpu.components.counting.device_time import BusyPeriod, BusyPeriodSum, DeviceTime, Parts
from otel_gpu.discovery.processes import Process
from otel_gpu.probes.table import FUNCTIONS
from otel_gpu.receivers.profiles.gpu_time import LAUNCHED_BEFORE, GpuTime
from otel_gpu.receivers.profiles.gpu_time_split import Shares, Work, split
from otel_gpu.receivers.profiles.sums import GRAPH, NOT_SAMPLED, SAMPLE_HEAD, StackSample
from otel_gpu.signals.metrics import Resource
from otel_gpu.signals.profiles import Frame, FrameKind

SITES = 4
PARTS = (10, 11, 11, 12)
"""By site: two do the same."""
TOOK = (1_000, 50, 70, 300)
LATE = 5
"""How long it takes to learn that work is done."""


def run(periods: list[list[int]], *, stacks: float, parts_known: float, seed: int = 0) -> tuple[Shares, Counter[int]]:
    """Let a device do busy periods of sites' work; look at some. Return what was found, and what each site took."""
    draw = random.Random(seed)
    work, time = Work(), DeviceTime(0)
    now = number = 0
    took: Counter[int] = Counter()
    kinds: dict[Parts, BusyPeriodSum] = {}
    for sites in periods:
        opened, first, is_whole, sampled = now, number, draw.random() < stacks, 0
        for site in sites:
            number += 1
            took[site] += TOOK[site]
            if is_whole or draw.random() < stacks / 3:
                sampled += 1
                work.number.append(number)
                work.site.append(site)
                work.when_ns.append(now)
            else:
                work.others[site] += draw.random() < 0.9
        end = now + sum(TOOK[s] for s in sites)
        now = end + LATE
        period = BusyPeriod(first, number, opened, now, end - opened - LATE)
        if sampled:
            time.add(period)
        parts = tuple(Counter(PARTS[s] for s in sites).items())
        if draw.random() < parts_known:
            kinds[parts] = kinds.get(parts, BusyPeriodSum(0, 0, 0)).plus(
                BusyPeriodSum(1, now - opened, period.lower_ns)
            )
        time.lower_ns += period.lower_ns
        time.upper_ns += now - opened
        now += 100
    time.kinds = kinds
    return split(work, time, PARTS), took


@given(
    st.lists(st.lists(st.integers(0, SITES - 1), min_size=1, max_size=6), min_size=1, max_size=20),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 1000),
)
def test_what_a_site_took_lies_between_its_bounds(
    periods: list[list[int]], stacks: float, parts_known: float, seed: int
) -> None:
    found, took = run(periods, stacks=stacks, parts_known=parts_known, seed=seed)

    for site, share in enumerate(found.sites):
        assert share.at_least_ns <= took[site] <= share.at_most_ns
    everybody = [*found.sites, *found.elsewhere.values(), found.unknown]
    assert sum(s.lower_ns for s in everybody) == sum(sum(TOOK[x] for x in b) - LATE for b in periods)
    assert sum(s.upper_ns for s in everybody) == sum(sum(TOOK[x] for x in b) + LATE for b in periods)
    assert all(value >= 0 for share in everybody for value in share)


def test_busy_periods_of_one_site_tell_it_all() -> None:
    found, took = run([[0], [1, 1, 1], [3]] * 5, stacks=1, parts_known=1)

    for site in (0, 1, 3):
        assert took[site] - found.sites[site].at_least_ns <= 5 * LATE
        assert found.sites[site].at_most_ns - took[site] <= 5 * LATE


def test_the_estimate_tells_long_work_from_short_by_how_busy_periods_differ() -> None:
    found, took = run([[0, 1, 1], [0, 0, 1, 3], [0, 1, 1, 1], [3, 3, 1]] * 20, stacks=0.3, parts_known=1)

    for site in (0, 1, 3):
        assert found.sites[site].upper_ns == pytest.approx(took[site], rel=0.1)


def test_what_was_done_without_a_stack_is_known_by_what_it_was() -> None:
    found, took = run([[0], [1]] * 5, stacks=0, parts_known=1)

    # The weights of stacks that stand for others are all there is of the sites.
    assert found.elsewhere[10].at_least_ns == took[0] - 5 * LATE
    assert found.sites[0].at_least_ns == 0
    assert found.sites[0].at_most_ns == took[0] + 5 * LATE


def test_time_without_a_submission_is_what_was_launched_before() -> None:
    gpu_time, process = GpuTime(lambda _process, _handle: ""), Process(7, Resource(()), start_ticks=1)

    (site,) = gpu_time.split(process, {0: DeviceTime(0, 3, 5)})

    assert site == ((LAUNCHED_BEFORE,), 3, 5, 0, 5)


def test_sites_are_named_by_what_they_submit() -> None:
    names = {0xA: "_Z4fillPf"}
    gpu_time, process = GpuTime(lambda _process, handle: names[handle]), Process(7, Resource(()), start_ticks=1)
    stack = (Frame(FrameKind.NATIVE, "caller"),)
    for number, (function, handle) in enumerate(
        (("cuLaunchKernel", 0xA), ("cuGraphLaunch", 0), ("cuMemcpyHtoDAsync", 0)), start=1
    ):
        sample = SAMPLE_HEAD.pack(
            SampleType.SUBMISSION,
            7,
            1,
            8,
            100,
            number,
            1,
            handle,
            0,
            0,
            0,
            b"",
            b"",
            FUNCTIONS.index(function),
            1,
            0,
            0,
        )
        gpu_time.add(process, StackSample.read(sample), stack)
    gpu_time.add_remainder(process, 0, 4)
    gpu_time.name(process)
    names.clear()

    found = {site.stack: site for site in gpu_time.split(process, {0: DeviceTime(0, 0, 7_000)})}

    assert found.keys() == {
        (Frame(FrameKind.CUDA, "fill(float*)"), *stack),
        (GRAPH, *stack),
        (Frame(FrameKind.NATIVE, "cuMemcpyHtoDAsync"), *stack),
        (NOT_SAMPLED,),
    }
    assert found[(NOT_SAMPLED,)].upper_ns == 4_000
