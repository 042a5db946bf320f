"""What the driver holds less what was seen being allocated, by device; nothing where that would be a guess."""

from __future__ import annotations

from otel_gpu.processors.untracked_memory import UntrackedMemory
from otel_gpu.signals import cuda, hardware
from otel_gpu.signals.metrics import Measurement, Resource, attributes

PROCESS, OTHER = (Resource(attributes({"process.pid": n})) for n in (1, 2))
DEVICE = {"cuda.device.index": 0, "cuda.device.uuid": "aaaa", "cuda.device.model": "H200", "hw.id": "GPU-aaaa"}
ALONE = {"cuda.device.uuid": "aaaa", "hw.id": "GPU-aaaa"}
"""The same, where the program was not seen to say which of its devices it is."""
GIB = 1 << 30


def usage(size: int, kind: str = "device", resource: Resource = PROCESS, **device: object) -> Measurement:
    attrs = attributes({"cuda.memory.type": kind, **(device or DEVICE)})
    return Measurement(resource, cuda.MEMORY_USAGE, attrs, size)


def held(size: int, uuid: str = "GPU-aaaa", resource: Resource = PROCESS) -> Measurement:
    return Measurement(resource, hardware.PROCESS_MEMORY, attributes({"hw.id": uuid}), size)


def untracked(found: list[Measurement]) -> list[tuple[dict[str, object], object]]:
    return [(dict(m.attributes), m.value) for m in found if m.metric is cuda.MEMORY_UNTRACKED]


def test_it_is_the_drivers_figure_less_what_lies_on_the_gpu() -> None:
    memory = UntrackedMemory()
    batch = [usage(3 * GIB), usage(GIB, "async"), usage(GIB, "virtual"), usage(9 * GIB, "managed"), usage(GIB, "host")]

    assert memory.metrics(batch) == batch
    assert untracked(memory.metrics([held(6 * GIB)])) == [(DEVICE, GIB)]


def test_it_follows_what_both_sides_add() -> None:
    memory = UntrackedMemory()
    memory.metrics([usage(2 * GIB), held(3 * GIB)])
    memory.metrics([usage(-GIB)])

    assert untracked(memory.metrics([held(0)])) == [(DEVICE, 2 * GIB)]


def test_a_process_that_allocated_before_has_all_of_it_untracked() -> None:
    found = UntrackedMemory().metrics([held(GIB), held(2 * GIB, "MIG-1", OTHER)])

    assert untracked(found) == [(ALONE, GIB), ({"cuda.device.uuid": "MIG-1", "hw.id": "MIG-1"}, 2 * GIB)]


def test_nothing_is_told_while_memory_lies_on_a_device_that_nobody_knows() -> None:
    memory = UntrackedMemory()
    memory.metrics([usage(GIB, **{"cuda.device.index": 1})])

    assert untracked(memory.metrics([held(GIB), held(GIB, resource=OTHER)])) == [(ALONE, GIB)]


def test_an_ended_process_is_forgotten() -> None:
    memory = UntrackedMemory()
    memory.metrics([usage(GIB), held(GIB)])

    memory.forget(PROCESS)

    assert untracked(memory.metrics([held(GIB)])) == [(ALONE, GIB)]
