"""A process's device N must be the GPU that the driver gives it, or none at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from otel_gpu.discovery.gpus import Gpu, Ordinals, ProcessDevices, visible_devices
from otel_gpu.processors.devices import DeviceNames
from otel_gpu.signals.metrics import Instrument, Measurement, MetricSpec, Resource, attributes

A, B, C, D = (Gpu(n, f"GPU-{c}{c}{c}{c}-0001", "H200") for n, c in enumerate("abcd"))
SLOW = Gpu(1, "GPU-eeee-0001", "L4")
PARTED = Gpu(0, "GPU-ffff-0001", "H200", instances=(Gpu(0, "MIG-1111", "H200 MIG"), Gpu(0, "MIG-2222", "H200 MIG")))
FOUR = (A, B, C, D)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, (A, B, C, D)),
        ("2,0", (C, A)),
        (" 1 , 3", (B, D)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,7,1", (A,)),
        ("1,x,2", (B,)),
        ("1,1", ()),
        ("GPU-cccc", (C,)),
        ("GPU-bbbb-0001,0", (B, A)),
        ("GPU-", ()),
        ("99999999999999999999", ()),
    ],
)
def test_cuda_visible_devices_is_read_as_the_driver_reads_it(variable: str | None, expected: tuple[Gpu, ...]) -> None:
    environment = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}

    assert visible_devices(FOUR, environment) == expected


def test_mixed_models_have_an_order_only_by_bus_or_uuid() -> None:
    mixed = (A, SLOW)

    assert visible_devices(mixed, {}) is None
    assert visible_devices(mixed, {"CUDA_VISIBLE_DEVICES": "0"}) is None
    assert visible_devices(mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == (A, SLOW)
    assert visible_devices(mixed, {"CUDA_VISIBLE_DEVICES": SLOW.uuid}) == (SLOW,)


def test_a_process_sees_one_mig_instance() -> None:
    first, second = PARTED.instances

    assert visible_devices((PARTED,), {"CUDA_VISIBLE_DEVICES": "MIG-2222,MIG-1111"}) == (second,)
    assert visible_devices((PARTED,), {"CUDA_VISIBLE_DEVICES": "MIG-1111"}) == (first,)
    assert visible_devices((PARTED,), {"CUDA_VISIBLE_DEVICES": "MIG-GPU-ffff-0001/1/0"}) == ()
    assert visible_devices((PARTED,), {}) is None


@pytest.mark.parametrize(
    ("let_in", "expected"),
    [("all", None), ("void", None), (None, None), ("3,1", (B, D)), (f"{C.uuid}", (C,)), ("nonsense", None)],
)
def test_a_container_counts_from_what_it_was_given(let_in: str | None, expected: tuple[Gpu, ...] | None) -> None:
    environment = {} if let_in is None else {"NVIDIA_VISIBLE_DEVICES": let_in}

    assert visible_devices(FOUR, environment, in_container=True) == expected
    assert visible_devices(FOUR, environment) == FOUR
    # Where there is one GPU, it is that one.
    assert visible_devices((C,), environment, in_container=True) == (C,)
    # A UUID names a GPU wherever it stands.
    by_uuid = {**environment, "CUDA_VISIBLE_DEVICES": C.uuid}
    assert visible_devices(FOUR, by_uuid, in_container=True) in ((C,), () if expected == (B, D) else (C,))


def used(
    guess: tuple[Gpu, ...], *rounds: tuple[set[int], tuple[Gpu, ...]], told: Mapping[int, Gpu] = {}
) -> list[object]:
    """Return what is known of the ordinals of a process after each round of what it uses and where NVML finds it."""
    ordinals, by_ordinal = Ordinals(), {**dict(enumerate(guess)), **told}
    return [
        {
            o: gpu.uuid[4]
            for o, gpu in ordinals.take(ProcessDevices(by_ordinal, told=frozenset(told), in_use=in_use), seen).items()
            if o in range(4)
        }
        for seen, in_use in rounds
    ]


def test_what_the_variables_say_holds_while_nvml_agrees() -> None:
    everything = {0: "a", 1: "b", 2: "c", 3: "d"}

    assert used(FOUR, ({0}, ()), ({0}, (A,)), ({1}, (A,)), ({1}, (A, B))) == [everything] * 4
    # A rank has a context on the first GPU as well.
    assert used(FOUR, ({3}, (A, D))) == [everything]


def test_a_program_that_changed_its_variables_is_where_nvml_finds_it() -> None:
    # Ordinal 0 is GPU 2, and what ordinal 1 is nobody knows.
    assert used(FOUR, ({0}, (C,)), ({1}, (C, D))) == [{0: "c"}, {0: "c"}]
    assert used(FOUR, ({0, 1}, (C, D))) == [{}]
    assert used(FOUR[:1], ({0}, (C,)), told={0: C}) == [{0: "c"}]


def test_a_container_that_says_nothing_is_where_nvml_finds_it() -> None:
    assert used((), ({0}, ()), ({0}, (C,)), ({0, 1}, (C, D))) == [{}, {0: "c"}, {0: "c"}]
    assert used((), ({0, 1}, (C,))) == [{}]


def test_a_container_with_one_mig_instance_has_that_one() -> None:
    environment = {"NVIDIA_VISIBLE_DEVICES": "MIG-2222", "CUDA_VISIBLE_DEVICES": "MIG-2222"}

    assert visible_devices((PARTED, A), environment, in_container=True) == PARTED.instances[1:]


METRIC = MetricSpec("m", "1", Instrument.COUNTER, "", ("cuda.device.index",))
PROCESS, OTHER = (Resource(attributes({"process.pid": n})) for n in (1, 2))


@dataclass
class Told:
    """A source that knows one process."""

    known: ProcessDevices | None

    def devices(self, resource: Resource) -> ProcessDevices | None:
        return self.known if resource == PROCESS else None


def measured(resource: Resource = PROCESS, metric: MetricSpec = METRIC, **attrs: object) -> Measurement:
    return Measurement(resource, metric, attributes({k.replace("_", "."): v for k, v in attrs.items()}), 1)


def test_an_ordinal_gets_uuid_and_model() -> None:
    unknown = [
        measured(OTHER, cuda_device_index=0),
        measured(cuda_device_index=2),
        measured(cuda_device_index=0, cuda_device_uuid="said"),
        measured(),
    ]

    first, *rest = DeviceNames(Told(ProcessDevices({0: B, 1: A}))).metrics([measured(cuda_device_index=0), *unknown])

    assert dict(first.attributes) == {
        "cuda.device.index": 0,
        "cuda.device.uuid": "bbbb-0001",
        "hw.id": "GPU-bbbb-0001",
        "cuda.device.model": "H200",
    }
    assert rest == unknown


def test_a_measurement_without_an_ordinal_is_of_the_only_device() -> None:
    (named,) = DeviceNames(Told(ProcessDevices({}, only=(0, C)))).metrics([measured(cuda_memory_type="device")])
    (nameless,) = DeviceNames(Told(ProcessDevices({}, only=(None, Gpu(-1, "GPU-1", ""))))).metrics([measured()])

    assert dict(named.attributes) == {
        "cuda.device.index": 0,
        "cuda.device.uuid": "cccc-0001",
        "hw.id": "GPU-cccc-0001",
        "cuda.device.model": "H200",
        "cuda.memory.type": "device",
    }
    assert dict(nameless.attributes) == {"cuda.device.uuid": "1", "hw.id": "GPU-1"}


def test_a_metric_that_has_no_device_gets_none() -> None:
    plain = MetricSpec("errors", "1", Instrument.COUNTER, "", ("cuda.function",))

    assert DeviceNames(Told(ProcessDevices({}, only=(0, C)))).metrics([measured(metric=plain)]) == [
        measured(metric=plain)
    ]


def test_what_is_learnt_later_holds_from_then_on() -> None:
    source = Told(None)
    names = DeviceNames(source)
    before = names.metrics([measured(cuda_device_index=0)])
    source.known = ProcessDevices({0: A})

    (after,) = names.metrics([measured(cuda_device_index=0)])

    assert before == [measured(cuda_device_index=0)]
    assert dict(after.attributes)["cuda.device.uuid"] == "aaaa-0001"
