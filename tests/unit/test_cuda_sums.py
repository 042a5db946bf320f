"""Rows of the kernel's table become series: the right metric, attributes and amount, and nothing twice."""

from __future__ import annotations

import pytest

from otel_gpu.bpf.abi.events import NodeType
from otel_gpu.bpf.abi.rows import (
    BUCKET_NONE,
    BUCKET_ZERO,
    DEVICE_UNKNOWN,
    CopyKind,
    Family,
    FreeCause,
    HostMemory,
    MemoryType,
)
from otel_gpu.components.counting.buckets import DURATION_SHIFT
from otel_gpu.discovery.processes import Process
from otel_gpu.probes.table import FUNCTIONS
from otel_gpu.receivers.cuda.error_types import ErrorTypes
from otel_gpu.receivers.cuda.graphs import Contents, Node
from otel_gpu.receivers.cuda.rows import RowDelta
from otel_gpu.receivers.cuda.sums import CudaSums
from otel_gpu.service import telemetry
from otel_gpu.signals.metrics import Buckets, Measurement, Resource, attributes

PROCESS = Process(10, Resource(attributes({"process.pid": 10})), 1)
LATE = Process(11, Resource(attributes({"process.pid": 11})), 1, late=True)
GRAPH: Contents = Contents(
    {
        Node(NodeType.KERNEL, 0xA, 0): 3,
        Node(NodeType.MEMSET, 64, 0): 2,
        Node(NodeType.COPY, 4096, CopyKind.HOST_TO_DEVICE | HostMemory.PINNED << 8): 1,
        Node(NodeType.COPY, 0, CopyKind.DEVICE_TO_DEVICE): 1,
    }
)
LOOP: Contents = Contents({Node(NodeType.KERNEL, 0xA, 0): 1, Node(NodeType.CONDITIONAL, 0, 0): 2})
FABRIC: Contents = Contents({Node(NodeType.KERNEL, 0xA, 0): 1, Node(NodeType.UNKNOWN, 0, 0): 2})
NESTED: Contents = Contents({Node(NodeType.KERNEL, 0xA, 0): 1, Node(NodeType.GRAPH, 0x7000, 0): 2})


def row(family: Family, count: int = 1, sum_a: int = 0, sum_b: int = 0, **fields: int) -> RowDelta:
    defaults = {
        "tgid": 10,
        "exec_id": 1,
        "subject": 0,
        "function": 0,
        "device": 0,
        "kind": 0,
        "detail": 0,
        "bucket_a": BUCKET_NONE,
        "bucket_b": BUCKET_NONE,
    }
    return RowDelta(family=family, count=count, sum_a=sum_a, sum_b=sum_b, **{**defaults, **fields})


def _key(_process: Process, handle: int, generation: int) -> int:
    """A handle was another kernel at generation 1."""
    return handle + 0x100 if generation == 1 else handle


@pytest.fixture
def sums() -> CudaSums:
    return CudaSums(
        lambda _, key: f"k{key:x}",
        _key,
        lambda _, version: {7: GRAPH, 9: NESTED, 10: LOOP, 11: FABRIC}.get(version),
        lambda process: process is LATE,
        ErrorTypes().of_cuda,
    )


def found(sums: CudaSums) -> dict[str, list[tuple[dict[str, object], object]]]:
    series: dict[str, list[tuple[dict[str, object], object]]] = {}
    measurements: list[Measurement] = list(sums.measurements())
    for m in measurements:
        series.setdefault(m.metric.name, []).append((dict(m.attributes), m.value))
        assert set(dict(m.attributes)) <= set(m.metric.attributes)
        assert telemetry.ALL[m.metric.name] is m.metric
    return series


def unexpanded(sums: CudaSums) -> dict[object, object]:
    return {dict(m.attributes)["otel_gpu.reason"]: m.value for m in sums.unexpanded()}


def test_launches_are_counted_by_kernel_with_their_dimensions(sums: CudaSums) -> None:
    sums.add(PROCESS, row(Family.LAUNCH, 3, 96, 384, subject=0xA, bucket_a=6, bucket_b=8))
    sums.add(PROCESS, row(Family.LAUNCH, 1, 1, 128, subject=0xA, bucket_a=1, bucket_b=8))

    series = found(sums)

    attrs = {"cuda.kernel.name": "ka", "cuda.device.index": 0}
    assert series == {
        "gpu.cuda.kernel.launch.calls": [(attrs, 4)],
        "gpu.cuda.kernel.grid.size": [(attrs, Buckets({4: 3, -1: 1}, 97))],
        "gpu.cuda.kernel.block.size": [(attrs, Buckets({6: 4}, 512))],
    }


def test_a_device_that_is_not_known_is_left_out(sums: CudaSums) -> None:
    sums.add(PROCESS, row(Family.MEMSET, 2, 100, device=DEVICE_UNKNOWN))

    assert found(sums) == {"gpu.cuda.memset.bytes": [({}, 100)]}


def test_a_graph_launch_counts_what_the_graph_holds(sums: CudaSums) -> None:
    sums.add(PROCESS, row(Family.GRAPH_LAUNCH, 10, subject=7))

    series = found(sums)

    device = {"cuda.device.index": 0}
    assert series["gpu.cuda.graph.launch.calls"] == [(device, 10)]
    assert series["gpu.cuda.graph.kernel.calls"] == [({**device, "cuda.kernel.name": "ka"}, 30)]
    assert series["gpu.cuda.graph.memset.bytes"] == [(device, 1280)]
    assert series["gpu.cuda.graph.memory.copies"] == [
        (
            {**device, "cuda.memcpy.kind": "MemcpyHostToDevice", "cuda.memory.host.type": "pinned"},
            Buckets({11: 10}, 40_960),
        ),
        ({**device, "cuda.memcpy.kind": "MemcpyDeviceToDevice"}, Buckets(zero_count=10)),
    ]
    assert unexpanded(sums) == {}


def test_a_graph_that_nobody_saw_is_counted_and_said_to_be_unknown(sums: CudaSums) -> None:
    sums.add(PROCESS, row(Family.GRAPH_LAUNCH, 10, subject=8))

    assert found(sums) == {"gpu.cuda.graph.launch.calls": [({"cuda.device.index": 0}, 10)]}
    assert unexpanded(sums) == {"older": 10}


@pytest.mark.parametrize(
    ("process", "graph", "reason"),
    [
        (PROCESS, 10, "conditional"), (PROCESS, 11, "unknown_node"), (LATE, 7, "device_launch"), (LATE, 8, "older"),
        (LATE, 10, "conditional"),
    ],
)  # fmt: skip
def test_a_launch_that_executes_more_than_is_known_is_counted_once_with_the_reason(
    sums: CudaSums, process: Process, graph: int, reason: str
) -> None:
    sums.add(process, row(Family.GRAPH_LAUNCH, 10, subject=graph))

    assert found(sums)["gpu.cuda.graph.launch.calls"] == [({"cuda.device.index": 0}, 10)]
    assert unexpanded(sums) == {reason: 10}


def test_children_that_nobody_saw_are_said_to_be_unknown(sums: CudaSums) -> None:
    sums.add(PROCESS, row(Family.GRAPH_LAUNCH, 10, subject=9))

    named = {"cuda.device.index": 0, "cuda.kernel.name": "ka"}
    assert found(sums)["gpu.cuda.graph.kernel.calls"] == [(named, 10)]
    assert unexpanded(sums) == {"older": 20}


@pytest.mark.parametrize(
    ("process", "host", "shown"),
    [
        (PROCESS, HostMemory.PAGEABLE, "pageable"),
        (PROCESS, HostMemory.PINNED, "pinned"),
        (PROCESS, HostMemory.NONE, None),
        (LATE, HostMemory.PINNED, "pinned"),
        # What was page-locked before we came looks pageable.
        (LATE, HostMemory.PAGEABLE, None),
    ],
)
def test_host_memory_is_told_where_it_is_known(
    sums: CudaSums, process: Process, host: HostMemory, shown: str | None
) -> None:
    sums.add(process, row(Family.COPY, 2, 300, kind=CopyKind.DEVICE_TO_HOST, detail=host, bucket_a=9))

    ((attrs, value),) = found(sums)["gpu.cuda.memory.copies"]
    assert attrs.get("cuda.memory.host.type") == shown
    assert attrs["cuda.memcpy.kind"] == "MemcpyDeviceToHost"
    assert value == Buckets({7: 2}, 300)


def test_copies_of_nothing_are_counted_as_zeros(sums: CudaSums) -> None:
    sums.add(PROCESS, row(Family.COPY, 5, 0, bucket_a=BUCKET_ZERO))

    ((_, value),) = found(sums)["gpu.cuda.memory.copies"]
    assert value == Buckets(zero_count=5)


def test_memory_is_added_and_taken_away_by_type(sums: CudaSums) -> None:
    sums.add(PROCESS, row(Family.ALLOC, 3, 1000, kind=MemoryType.DEVICE))
    sums.add(PROCESS, row(Family.FREE, 1, 400, kind=MemoryType.DEVICE))
    sums.ended(PROCESS, 0, MemoryType.DEVICE, 100)
    sums.add(PROCESS, row(Family.ALLOC, 1, 50, kind=MemoryType.HOST))

    series = {
        name: {attrs["cuda.memory.type"]: value for attrs, value in values} for name, values in found(sums).items()
    }

    assert series == {
        "gpu.cuda.memory.allocations": {"device": 1000, "host": 50},
        "gpu.cuda.memory.free.bytes": {"device": 400},
        "gpu.cuda.memory.usage": {"device": 500, "host": 50},
    }


def test_frees_of_unknown_memory_are_counted_apart(sums: CudaSums) -> None:
    sums.add(PROCESS, row(Family.FREE, 4, 0, kind=MemoryType.UNKNOWN))
    sums.add(PROCESS, row(Family.FREE, 2, 64, kind=MemoryType.ASYNC, detail=FreeCause.IMPLICIT))

    series = found(sums)

    assert series["gpu.cuda.memory.unmatched.frees"] == [
        ({"otel_gpu.reason": "allocated_before"}, 4),
        ({"otel_gpu.reason": "implicit"}, 2),
    ]
    assert [value for _, value in series["gpu.cuda.memory.usage"]] == [-64]


def test_waits_are_in_seconds(sums: CudaSums) -> None:
    function = FUNCTIONS.index("cuStreamSynchronize")
    # One second is in the bucket (0.5, 1], which is -1.
    bucket = -1 + DURATION_SHIFT
    sums.add(PROCESS, row(Family.WAIT, 2, 1_500_000_000, function=function, bucket_a=bucket))

    ((attrs, value),) = found(sums)["gpu.cuda.synchronize.duration"]
    assert attrs == {"cuda.function": "cuStreamSynchronize", "cuda.device.index": 0}
    assert value == Buckets({-1: 2}, 1.5)


def test_errors_have_the_functions_and_the_codes_name(sums: CudaSums) -> None:
    sums.add(PROCESS, row(Family.ERROR, 2, function=FUNCTIONS.index("cuMemAlloc"), subject=2))

    attrs = {"cuda.function": "cuMemAlloc", "error.type": "CUDA_ERROR_OUT_OF_MEMORY"}
    assert found(sums) == {"gpu.cuda.errors": [(attrs, 2)]}
