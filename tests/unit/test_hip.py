"""Do HIP's structures and rules come out in CUDA's terms, and the sums under HIP's names?"""

from __future__ import annotations

import struct

import pytest

from otel_gpu.bpf.abi.events import NodeType
from otel_gpu.bpf.abi.rows import DEVICE_UNKNOWN, CopyKind
from otel_gpu.discovery.processes import Process
from otel_gpu.receivers.cuda.graphs import Graphs, Node
from otel_gpu.receivers.hip import rows as hip
from otel_gpu.service import telemetry
from otel_gpu.signals.metrics import Measurement, Resource, attributes

GRAPH, NODE, EXEC, VERSION = 0x10, 0x20, 0x30, 99
RESOURCE = Resource(())


def contents_of(function: str, data: bytes) -> list[Node]:
    graphs = Graphs()
    name, translated = hip.as_cuda(function, data.ljust(256, b"\0"))
    graphs.called(name, NODE, 0, (0, GRAPH, 0, 0, 0, 0), translated)
    graphs.called("cuGraphInstantiate", EXEC, VERSION, (0, GRAPH, 0, 0, 0, 0), bytes(256))
    return list(graphs.contents(VERSION) or ())


def test_a_kernel_node_is_read_as_hip_lays_it_out() -> None:
    data = struct.pack("<3I4xQQ3I4xQI", 32, 2, 1, 0, 0xABC, 8, 4, 1, 0, 0)

    assert contents_of("hipGraphAddKernelNode", data) == [Node(NodeType.KERNEL, 0xABC, 6 | 7 << 8)]


def test_a_memset_node_is_read_as_hip_lays_it_out() -> None:
    data = struct.pack("<QI4xQQI4xQ", 0x1000, 4, 3, 64, 0, 5)

    assert contents_of("hipGraphAddMemsetNode", data) == [Node(NodeType.MEMSET, 60, 0)]


@pytest.mark.parametrize("kind", [k for k in CopyKind if k is not CopyKind.PEER])
def test_a_copy_node_is_of_the_kind_that_it_says(kind: CopyKind) -> None:
    data = struct.pack("<128x3QI", 10, 4, 2, kind)

    assert contents_of("hipGraphAddMemcpyNode", data) == [Node(NodeType.COPY, 80, kind)]


def test_other_calls_keep_their_parameters() -> None:
    assert hip.as_cuda("hipGraphClone", b"x") == ("cuGraphClone", b"x")


def test_threads_that_chose_no_device_use_the_first_unless_they_may_have_chosen_before() -> None:
    assert hip.device_of(DEVICE_UNKNOWN, Process(1, RESOURCE, 0, late=False)) == 0
    assert hip.device_of(DEVICE_UNKNOWN, Process(1, RESOURCE, 0, late=True)) == DEVICE_UNKNOWN
    assert hip.device_of(3, Process(1, RESOURCE, 0, late=False)) == 3


def test_a_reset_of_the_first_device_is_one_of_the_default() -> None:
    assert set(hip.devices_reset(DEVICE_UNKNOWN)) == set(hip.devices_reset(0)) == {0, DEVICE_UNKNOWN}
    assert hip.devices_reset(1) == (1,)


@pytest.mark.parametrize("spec", hip.PARALLEL, ids=lambda spec: spec.name)
def test_a_measurement_goes_over_to_the_parallel_metric(spec: telemetry.MetricSpec) -> None:
    given = Measurement(RESOURCE, spec, attributes({"cuda.function": "hipFree", "error.type": "x"}), 5)

    (named,) = hip.measurements([given])

    assert named.metric.name == spec.name.replace("gpu.cuda", "gpu.hip")
    assert "cuda" not in (named.metric.description + str(named.metric.attributes)).lower()
    assert named.attributes == attributes({"error.type": "x", "hip.function": "hipFree"})
    assert (named.resource, named.value) == (RESOURCE, 5)
