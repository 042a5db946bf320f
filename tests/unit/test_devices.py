"""A process's device N must be the GPU that the driver gives it, or none at all."""

from __future__ import annotations

import pytest

from otel_gpu.model import Instrument, Measurement, MetricSpec, Resource, attributes
from otel_gpu.processors.devices import DeviceNames, Gpu, visible_devices

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
    [("all", FOUR), ("void", FOUR), (None, FOUR), ("3,1", (B, D)), (f"{C.uuid}", (C,)), ("nonsense", FOUR)],
)
def test_a_container_counts_from_what_it_was_given(let_in: str | None, expected: tuple[Gpu, ...]) -> None:
    environment = {} if let_in is None else {"NVIDIA_VISIBLE_DEVICES": let_in}

    assert visible_devices(FOUR, environment, in_container=True) == expected
    assert visible_devices(FOUR, environment) == FOUR


def test_a_container_with_one_mig_instance_has_that_one() -> None:
    environment = {"NVIDIA_VISIBLE_DEVICES": "MIG-2222", "CUDA_VISIBLE_DEVICES": "MIG-2222"}

    assert visible_devices((PARTED, A), environment, in_container=True) == PARTED.instances[1:]


def test_an_ordinal_gets_uuid_and_model_until_its_process_ends() -> None:
    metric = MetricSpec("m", "1", Instrument.COUNTER, "")
    process, other = (Resource(attributes({"process.pid": n})) for n in (1, 2))
    names = DeviceNames()
    names.learn(process, (B, A))
    told = Measurement(process, metric, attributes({"cuda.device.index": 0}), 1)
    unknown = [
        Measurement(other, metric, attributes({"cuda.device.index": 0}), 1),
        Measurement(process, metric, attributes({"cuda.device.index": 2}), 1),
        Measurement(process, metric, attributes({"cuda.device.index": 0, "cuda.device.uuid": "said"}), 1),
        Measurement(process, metric, (), 1),
    ]

    first, *rest = names.process([told, *unknown])
    names.forget(process)

    assert dict(first.attributes) == {
        "cuda.device.index": 0,
        "cuda.device.uuid": "bbbb-0001",
        "cuda.device.model": "H200",
    }
    assert rest == unknown
    assert names.process([told]) == [told]
