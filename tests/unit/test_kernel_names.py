"""Names stay bounded and totals exact, whatever a program calls its kernels."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.processors.kernel_names.processor import KernelNames
from otel_gpu.signals import cuda
from otel_gpu.signals.metrics import Buckets, Measurement, MetricSpec, Resource, SeriesStore, Value, attributes

PROCESS, ANOTHER = (Resource(attributes({"process.pid": n})) for n in (1, 2))
AXPY = "_ZN4shop4axpyIfEEvifPKT_PS1_"


def launches(name: str, count: int, resource: Resource = PROCESS) -> Measurement:
    return of(cuda.KERNEL_LAUNCH_CALLS, name, count, resource)


def of(metric: MetricSpec, name: str, value: Value, resource: Resource = PROCESS) -> Measurement:
    return Measurement(resource, metric, attributes({"cuda.device.index": 0, "cuda.kernel.name": name}), value)


def shown(measurements: list[Measurement]) -> Counter[object]:
    found: Counter[object] = Counter()
    for m in measurements:
        assert isinstance(m.value, int)
        found[dict(m.attributes).get("cuda.kernel.name")] += m.value
    return found


def test_the_most_launched_keep_their_names_and_the_rest_is_other() -> None:
    names = KernelNames(2)

    found = names.metrics([launches("rare", 1), launches("often", 50), launches("seldom", 2), launches("always", 90)])

    assert shown(found) == {"always": 90, "often": 50, "other": 3}


def test_few_launches_of_many_blocks_are_important_too() -> None:
    names = KernelNames(1)
    huge = of(cuda.KERNEL_GRID_SIZE, "huge", Buckets({20: 1}, 1 << 21))
    small = of(cuda.KERNEL_GRID_SIZE, "small", Buckets({1: 60}, 240))

    found = names.metrics([launches("huge", 1), launches("small", 60), launches("third", 60), huge, small])

    assert {dict(m.attributes)["cuda.kernel.name"] for m in found if m.metric is huge.metric} == {"huge", "other"}


def test_processes_are_ranked_apart() -> None:
    names = KernelNames(1)

    found = names.metrics([launches("a", 5), launches("b", 1), launches("b", 2, ANOTHER)])

    assert [(m.resource, dict(m.attributes)["cuda.kernel.name"]) for m in found] == [
        (PROCESS, "a"),
        (PROCESS, "other"),
        (ANOTHER, "b"),
    ]


def test_a_kernel_that_becomes_important_takes_the_weakest_ones_place() -> None:
    names = KernelNames(1)
    names.metrics([launches("first", 10)])

    assert shown(names.metrics([launches("second", 15)])) == {"other": 15}
    assert shown(names.metrics([launches("second", 15)])) == {"second": 15}
    assert shown(names.metrics([launches("first", 1)])) == {"other": 1}


def test_zero_takes_names_away() -> None:
    (found,) = KernelNames(0).metrics([launches("a", 5)])

    assert found.attributes == (("cuda.device.index", 0),)


def test_what_has_no_kernel_passes() -> None:
    plain = Measurement(PROCESS, cuda.MEMORY_ALLOCATIONS, (), 1)

    assert KernelNames(1).metrics([plain]) == [plain]
    assert KernelNames(1).metrics([launches("a", 1), plain])[0] == plain


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("full", "void shop::axpy<float>(int, float, float const*, float*)"), ("short", "shop::axpy"), ("off", AXPY)],
)
def test_names_are_shown_as_asked_for(mode: str, expected: str) -> None:
    assert shown(KernelNames(5, mode).metrics([launches(AXPY, 3), launches("plain_c", 2)])) == {
        expected: 3,
        "plain_c": 2,
    }


def test_kernels_that_are_one_when_shortened_are_ranked_as_one() -> None:
    double = AXPY.replace("axpyIf", "axpyId")
    names = KernelNames(1, "short")

    found = names.metrics([launches(AXPY, 3), launches("c", 4), launches(double, 2)])
    store = SeriesStore()
    store.fold(found, 0)

    assert shown(found) == {"shop::axpy": 5, "other": 4}
    assert sorted(s.value for r in store for s in r.series.values()) == [4, 5]


def test_an_ended_process_is_forgotten() -> None:
    names = KernelNames(1)
    names.metrics([launches("a", 100)])

    names.forget(PROCESS)

    assert shown(names.metrics([launches("b", 1)])) == {"b": 1}


@given(
    st.integers(1, 4), st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 1000)), max_size=20), max_size=12)
)
def test_totals_are_exact_and_names_bounded_in_any_history(top: int, history: list[list[tuple[int, int]]]) -> None:
    names = KernelNames(top)
    seen: Counter[object] = Counter()

    for batch in history:
        seen += shown(names.metrics([launches(f"k{kernel}", count) for kernel, count in batch]))

    assert seen.total() == sum(count for batch in history for _, count in batch)
    assert len(seen.keys() - {"other"}) <= 2 * top


def test_what_a_program_that_makes_up_names_has_ranked_is_bounded() -> None:
    names, most = KernelNames(2), 16_384

    for turn in range(3):
        found = names.metrics([*(launches(f"made_up_{turn}_{n}", 1) for n in range(most)), launches("real", 10)])
        assert shown(found)["real"] == 10
        assert shown(found).total() == most + 10

    assert len(names._rankings[PROCESS].launches) <= most
