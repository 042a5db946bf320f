"""What a graph executes follows from how it was made and changed."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.bpf.abi.events import NodeType
from otel_gpu.bpf.abi.rows import CopyKind, HostMemory
from otel_gpu.receivers.cuda import graphs as cuda_graphs
from otel_gpu.receivers.cuda.graphs import Contents, Graphs, Node, copies

GRAPH, OTHER, EXEC, NODE, NODE2, CHILD = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000
ONE = Node(NodeType.KERNEL, 0xA1, 0)
TWO = Node(NodeType.KERNEL, 0xA2, 0)
COPY = Node(NodeType.COPY, 4096, CopyKind.HOST_TO_DEVICE | HostMemory.PINNED << 8)


def kernel(handle: int, grid: tuple[int, int, int] = (1, 1, 1), library: int = 0) -> bytes:
    head = struct.pack("<Q7I", handle, *grid, 1, 1, 1, 0)
    return (head.ljust(56, b"\0") + struct.pack("<2Q", library, 0)).ljust(256, b"\0")


def memset(element: int, width: int, height: int) -> bytes:
    return struct.pack("<QQIIQQ", 0xD000, 512, 7, element, width, height).ljust(256, b"\0")


def copy(source: int, target: int, width: int, height: int = 1, depth: int = 1) -> bytes:
    raw = bytearray(256)
    struct.pack_into("<I", raw, 32, source)
    struct.pack_into("<I", raw, 120, target)
    struct.pack_into("<3Q", raw, 176, width, height, depth)
    return bytes(raw)


class Calls:
    """A program's calls about graphs, told one by one."""

    def __init__(self) -> None:
        self.graphs = Graphs()
        self.version = 0

    def call(self, function: str, *arguments: int, out: int = 0, data: bytes = bytes(256)) -> int:
        self.version += 1
        six = (*arguments, *[0] * (6 - len(arguments)))
        self.graphs.called(function, out, self.version, six, data)
        return self.version

    def add(self, graph: int, node: int, data: bytes, kind: str = "Kernel") -> None:
        self.call(f"cuGraphAdd{kind}Node", 0, graph, out=node, data=data)

    def instantiate(self, graph: int, exec_: int = EXEC) -> Contents:
        return self.contents(self.call("cuGraphInstantiateWithFlags", 0, graph, out=exec_))

    def contents(self, version: int) -> Contents:
        found = self.graphs.contents(version)
        assert found is not None
        return found


@pytest.fixture
def calls() -> Calls:
    return Calls()


def handles(contents: Contents) -> Counter[int]:
    found: Counter[int] = Counter()
    for node, count in contents.items():
        found[node.value] += count
    return found


def test_a_capture_becomes_a_graph_with_what_was_recorded(calls: Calls) -> None:
    for node in (ONE, TWO, ONE, COPY):
        calls.graphs.captured(77, node)
    calls.graphs.captured(78, TWO)
    calls.graphs.called("cuStreamEndCapture", GRAPH, 77, (0,) * 6, b"")

    contents = calls.instantiate(GRAPH)

    assert contents == {ONE: 2, TWO: 1, COPY: 1}
    assert list(copies(contents)) == [(CopyKind.HOST_TO_DEVICE, HostMemory.PINNED, 4096, 1)]


def test_a_graph_launched_while_captured_is_part_of_the_capture(calls: Calls) -> None:
    calls.add(CHILD, NODE, kernel(0xA1))
    calls.add(CHILD, NODE2, kernel(0xA1))
    version = calls.call("cuGraphInstantiateWithFlags", 0, CHILD, out=OTHER)
    calls.graphs.captured(77, Node(NodeType.GRAPH, version, 0))
    calls.graphs.captured(77, TWO)
    calls.call("cuGraphExecKernelNodeSetParams", OTHER, NODE, data=kernel(0xA3))
    calls.graphs.called("cuStreamEndCapture", GRAPH, 77, (0,) * 6, b"")

    assert handles(calls.instantiate(GRAPH)) == {0xA1: 2, 0xA2: 1}


def test_a_captured_graph_that_nobody_saw_being_made_stays_one_node(calls: Calls) -> None:
    unseen = Node(NodeType.GRAPH, 0x7000, 0)
    calls.graphs.captured(77, unseen)
    calls.graphs.called("cuStreamEndCapture", GRAPH, 77, (0,) * 6, b"")

    assert calls.instantiate(GRAPH) == {unseen: 1}


def test_captures_that_take_graphs_in_stay_bounded(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "_MAX_NODES", 100)
    calls.add(GRAPH, NODE, kernel(0xA1))
    version = calls.call("cuGraphInstantiateWithFlags", 0, GRAPH, out=EXEC)
    for capture in range(10):
        calls.graphs.captured(capture, Node(NodeType.GRAPH, version, 0))
        calls.graphs.captured(capture, Node(NodeType.GRAPH, version, 0))
        calls.graphs.called("cuStreamEndCapture", OTHER + capture, capture, (0,) * 6, b"")
        version = calls.call("cuGraphInstantiateWithFlags", 0, OTHER + capture, out=EXEC)

    assert calls.contents(version).total() == 64


def test_explicit_nodes_are_read_as_cuda_h_lays_them_out(calls: Calls) -> None:
    calls.add(GRAPH, NODE, kernel(0xA1, (2, 3, 4)))
    calls.add(GRAPH, NODE2, memset(4, 10, 3), "Memset")
    calls.add(GRAPH, CHILD, copy(1, 2, 100, 2, 3), "Memcpy")

    contents = calls.instantiate(GRAPH)

    assert contents[Node(NodeType.MEMSET, 120, 0)] == 1
    assert contents[Node(NodeType.COPY, 600, CopyKind.HOST_TO_DEVICE)] == 1
    # 24 blocks are in the bucket (16, 32], which ebpf/abi/ numbers 4 + 2; one thread is in the bucket of 1.
    assert contents[Node(NodeType.KERNEL, 0xA1, 6 | 1 << 8)] == 1


def test_a_librarys_kernel_stands_behind_the_parameters(calls: Calls) -> None:
    calls.add(GRAPH, NODE, kernel(0, library=0xB7))

    assert handles(calls.instantiate(GRAPH)) == {0xB7: 1}


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        (1, 1, CopyKind.HOST_TO_HOST),
        (1, 2, CopyKind.HOST_TO_DEVICE),
        (2, 1, CopyKind.DEVICE_TO_HOST),
        (3, 1, CopyKind.DEVICE_TO_HOST),
        (2, 3, CopyKind.DEVICE_TO_DEVICE),
        (4, 2, CopyKind.DEFAULT),
        (1, 4, CopyKind.DEFAULT),
    ],
)
def test_a_copys_kind_follows_from_its_two_sides(calls: Calls, source: int, target: int, kind: CopyKind) -> None:
    calls.add(GRAPH, NODE, copy(source, target, 8), "Memcpy")

    assert [c[0] for c in copies(calls.instantiate(GRAPH))] == [kind]


def test_generic_nodes_are_told_by_their_type(calls: Calls) -> None:
    typed = [(0, kernel(0xA1)), (2, memset(1, 5, 0)), (1, b"\0" * 16 + copy(1, 2, 9)), (7, b"")]
    for at, (kind, parameters) in enumerate(typed):
        data = (struct.pack("<4i", kind, 0, 0, 0) + parameters)[:256].ljust(256, b"\0")
        calls.call("cuGraphAddNode", 0, GRAPH, out=NODE + at, data=data)

    assert handles(calls.instantiate(GRAPH)) == {0xA1: 1, 5: 1, 9: 1}


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (13, {Node(NodeType.CONDITIONAL, 0, 0): 1}), (14, {Node(NodeType.UNKNOWN, 0, 0): 1}),
        (999, {Node(NodeType.UNKNOWN, 0, 0): 1}), (-1, {Node(NodeType.UNKNOWN, 0, 0): 1}), (5, {}), (12, {}),
    ],
)  # fmt: skip
def test_nodes_that_execute_what_nobody_can_tell_are_marked(calls: Calls, kind: int, found: dict[Node, int]) -> None:
    calls.call("cuGraphAddNode", 0, GRAPH, out=NODE, data=struct.pack("<4i", kind, 0, 0, 0).ljust(256, b"\0"))

    assert calls.instantiate(GRAPH) == found


@pytest.mark.parametrize(
    ("function", "third", "data", "may"),
    [
        ("cuGraphInstantiateWithFlags", 4, b"", True), ("cuGraphInstantiateWithFlags", 8, b"", False),
        ("cuGraphInstantiateWithParams", 0x7000, b"\x06", True), ("cuGraphInstantiateWithParams", 0x7004, b"\x02", False),
        ("cuGraphInstantiate", 0x7004, b"", False),
    ],
)  # fmt: skip
def test_a_graph_that_the_device_may_launch_is_known_by_its_flags(
    calls: Calls, function: str, third: int, data: bytes, may: bool
) -> None:
    calls.call(function, 0, GRAPH, third, out=EXEC, data=data.ljust(256, b"\0"))

    assert calls.graphs.may_launch_on_device is may


def condition(*bodies: int, size: int | None = None) -> bytes:
    """Return CUgraphNodeParams as the probes put the bodies behind them."""
    head = struct.pack("<4iQiI", 13, 0, 0, 0, 1, 0, len(bodies) if size is None else size).ljust(64, b"\0")
    return (head + struct.pack(f"<{len(bodies)}Q", *bodies)).ljust(256, b"\0")


@pytest.mark.parametrize("end", ["cuGraphDestroy", "cuGraphDestroyNode"])
def test_bodies_end_with_their_condition(calls: Calls, end: str) -> None:
    """Their handles may be other graphs' from then on; a condition may be in a body."""
    calls.call("cuGraphAddNode", 0, GRAPH, out=NODE, data=condition(OTHER))
    calls.add(OTHER, NODE2, kernel(0xA1))
    calls.call("cuGraphAddNode", 0, OTHER, out=0x7000, data=condition(CHILD))
    calls.add(CHILD, 0x8000, kernel(0xA2))
    assert calls.instantiate(GRAPH) == {Node(NodeType.CONDITIONAL, 0, 0): 1}

    calls.call(end, GRAPH if end == "cuGraphDestroy" else NODE)

    assert calls.instantiate(OTHER) == calls.instantiate(CHILD) == {}


def test_a_new_body_has_nothing_of_an_older_graph(calls: Calls) -> None:
    calls.add(OTHER, NODE2, kernel(0xA1))
    calls.call("cuGraphAddNode", 0, GRAPH, out=NODE, data=condition(OTHER, size=1 << 31))

    assert calls.instantiate(OTHER) == {}


def test_bodies_in_bodies_end_without_end(calls: Calls) -> None:
    for n in range(3000):
        calls.call("cuGraphAddNode", 0, 1 + n, out=10_000 + n, data=condition(2 + n))
    calls.call("cuGraphAddNode", 0, 3001, out=20_000, data=condition(1))

    calls.call("cuGraphDestroy", 2)

    assert calls.instantiate(3000) == {}


def test_a_child_is_what_it_was_when_it_was_added(calls: Calls) -> None:
    calls.add(CHILD, NODE, kernel(0xA1))
    calls.call("cuGraphAddChildGraphNode", 0, GRAPH, 0, 0, CHILD, out=NODE2)
    generic = struct.pack("<4iQ", 4, 0, 0, 0, CHILD).ljust(256, b"\0")
    calls.call("cuGraphAddNode", 0, GRAPH, out=NODE2 + 1, data=generic)
    calls.add(CHILD, NODE + 1, kernel(0xA2))

    assert handles(calls.instantiate(GRAPH)) == {0xA1: 2}
    assert handles(calls.instantiate(CHILD)) == {0xA1: 1, 0xA2: 1}


def test_a_clone_goes_its_own_way(calls: Calls) -> None:
    calls.add(GRAPH, NODE, kernel(0xA1))
    calls.call("cuGraphClone", 0, GRAPH, out=OTHER)
    calls.call("cuGraphKernelNodeSetParams", NODE, data=kernel(0xA2))

    assert handles(calls.instantiate(OTHER)) == {0xA1: 1}
    assert handles(calls.instantiate(GRAPH)) == {0xA2: 1}


def test_destroyed_nodes_and_graphs_are_gone(calls: Calls) -> None:
    calls.add(GRAPH, NODE, kernel(0xA1))
    calls.add(GRAPH, NODE2, kernel(0xA2))
    calls.call("cuGraphDestroyNode", NODE)

    assert handles(calls.instantiate(GRAPH)) == {0xA2: 1}
    calls.call("cuGraphDestroy", GRAPH)
    assert calls.instantiate(GRAPH) == {}
    calls.call("cuGraphKernelNodeSetParams", NODE2, data=kernel(0xA1))
    assert calls.graphs.unknown_nodes == 1


def test_an_executable_graph_keeps_what_it_was_made_of(calls: Calls) -> None:
    calls.add(GRAPH, NODE, kernel(0xA1))
    first = calls.call("cuGraphInstantiate", 0, GRAPH, out=EXEC)
    calls.add(GRAPH, NODE2, kernel(0xA2))
    changed = calls.call("cuGraphExecKernelNodeSetParams", EXEC, NODE, data=kernel(0xA3))

    assert handles(calls.contents(first)) == {0xA1: 1}
    assert handles(calls.contents(changed)) == {0xA3: 1}


def test_an_update_keeps_handles_and_what_is_disabled(calls: Calls) -> None:
    for graph, first in ((GRAPH, 0xA1), (OTHER, 0xB1)):
        calls.add(graph, graph + 1, kernel(first))
        calls.add(graph, graph + 2, kernel(first + 1))
    calls.instantiate(GRAPH)
    disabled = calls.call("cuGraphNodeSetEnabled", EXEC, GRAPH + 1, 0)
    updated = calls.call("cuGraphExecUpdate", EXEC, OTHER)
    enabled = calls.call("cuGraphNodeSetEnabled", EXEC, GRAPH + 1, 1)
    changed = calls.call("cuGraphExecKernelNodeSetParams", EXEC, GRAPH + 2, data=kernel(0xC1))

    assert [handles(calls.contents(v)) for v in (disabled, updated, enabled, changed)] == [
        {0xA2: 1},
        {0xB2: 1},
        {0xB1: 1, 0xB2: 1},
        {0xB1: 1, 0xC1: 1},
    ]
    assert calls.graphs.unknown_nodes == 0


def test_changes_to_captured_nodes_are_counted_as_unknown(calls: Calls) -> None:
    calls.graphs.captured(1, ONE)
    calls.graphs.called("cuStreamEndCapture", GRAPH, 1, (0,) * 6, b"")
    calls.instantiate(GRAPH)

    calls.call("cuGraphExecKernelNodeSetParams", EXEC, NODE, data=kernel(0xA2))
    calls.call("cuGraphNodeSetEnabled", EXEC, NODE, 0)

    assert calls.graphs.unknown_nodes == 2


def test_a_version_that_nobody_saw_is_not_known(calls: Calls) -> None:
    assert calls.graphs.contents(5) is None
    calls.call("cuGraphExecKernelNodeSetParams", EXEC, NODE, data=kernel(0xA2))
    assert calls.graphs.contents(calls.version) is None


def test_what_a_hostile_program_makes_is_bounded(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_MAX_NODES", "_MAX_VERSIONS", "_MAX_CAPTURES", "_MAX_GRAPHS"):
        monkeypatch.setattr(cuda_graphs, name, 10)
    for n in range(100):
        calls.graphs.captured(n % 50, ONE)
        calls.add(GRAPH, n, kernel(n))
        calls.add(GRAPH + n, 1000 + n, kernel(n))
        calls.instantiate(GRAPH + n, EXEC + n)

    graphs = calls.graphs
    assert len(graphs._captures) <= 10
    assert len(graphs._versions) <= 10
    assert len(graphs._execs) <= 10
    assert len(graphs._graphs) <= 10
    assert max(len(g) for g in graphs._graphs.values()) <= 10


def test_graphs_that_take_each_other_in_stay_bounded(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "_MAX_NODES", 1000)
    for n in range(60):
        one, two = (GRAPH, OTHER) if n % 2 else (OTHER, GRAPH)
        calls.call("cuGraphAddChildGraphNode", 0, one, 0, 0, two, out=NODE + n)

    assert len(calls.graphs._graphs[GRAPH]) < 1000


def test_an_update_to_the_same_is_kept_once(calls: Calls) -> None:
    calls.add(GRAPH, NODE, kernel(0xA1))
    calls.instantiate(GRAPH)

    versions = [calls.call("cuGraphExecUpdate", EXEC, GRAPH) for _ in range(3)]

    assert len({id(calls.contents(v)) for v in versions}) == 1


FUNCTIONS = (
    "cuStreamEndCapture",
    "cuGraphAddKernelNode",
    "cuGraphAddMemcpyNode",
    "cuGraphAddMemsetNode",
    "cuGraphAddNode",
    "cuGraphAddChildGraphNode",
    "cuGraphClone",
    "cuGraphDestroyNode",
    "cuGraphDestroy",
    "cuGraphNodeSetParams",
    "cuGraphInstantiateWithParams",
    "cuGraphExecUpdate",
    "cuGraphExecDestroy",
    "cuGraphNodeSetEnabled",
    "cuGraphExecChildGraphNodeSetParams",
    "cuGraphExecNodeSetParams",
    "anything else",
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(FUNCTIONS),
            st.integers(0, 3),
            st.lists(st.integers(0, 3), min_size=6, max_size=6),
            st.binary(min_size=256, max_size=256),
        ),
        max_size=30,
    )
)
def test_any_calls_leave_graphs_that_can_be_counted(history: list[tuple[str, int, list[int], bytes]]) -> None:
    graphs = Graphs()

    for version, (function, out, arguments, data) in enumerate(history):
        graphs.called(function, out, version, tuple(arguments), data)
        contents = graphs.contents(version)
        assert contents is None or all(count > 0 for count in contents.values())


def child_of(graph: int) -> bytes:
    return struct.pack("<i12xQ", 4, graph).ljust(256, b"\0")


def test_a_node_found_in_a_clone_is_the_clones(calls: Calls) -> None:
    calls.add(GRAPH, NODE, kernel(0xA))
    calls.call("cuGraphClone", 0, GRAPH, out=OTHER)
    calls.call("cuGraphNodeFindInClone", 0, NODE, OTHER, out=NODE2)
    calls.call("cuGraphKernelNodeSetParams", NODE2, data=kernel(0xB))

    assert handles(calls.instantiate(GRAPH)) == {0xA: 1}
    assert handles(calls.instantiate(OTHER)) == {0xB: 1}

    calls.call("cuGraphDestroyNode", NODE2)
    assert not calls.instantiate(OTHER)
    assert calls.graphs.unknown_nodes == 0


def test_destroying_a_clone_leaves_the_originals_nodes_known(calls: Calls) -> None:
    calls.add(GRAPH, NODE, kernel(0xA))
    calls.call("cuGraphClone", 0, GRAPH, out=OTHER)
    calls.call("cuGraphDestroy", OTHER)
    calls.call("cuGraphKernelNodeSetParams", NODE, data=kernel(0xB))

    assert handles(calls.instantiate(GRAPH)) == {0xB: 1}
    assert calls.graphs.unknown_nodes == 0


@pytest.mark.parametrize("of_exec", (False, True))
def test_a_child_is_replaced_by_parameters_of_any_type(calls: Calls, of_exec: bool) -> None:
    calls.add(CHILD, NODE, kernel(0xA))
    calls.add(OTHER, NODE2, kernel(0xB))
    calls.call("cuGraphAddChildGraphNode", 0, GRAPH, 0, 0, CHILD, out=0x7000)
    assert handles(calls.instantiate(GRAPH)) == {0xA: 1}

    if of_exec:
        changed = calls.contents(calls.call("cuGraphExecNodeSetParams", EXEC, 0x7000, data=child_of(OTHER)))
    else:
        calls.call("cuGraphNodeSetParams", 0x7000, data=child_of(OTHER))
        changed = calls.instantiate(GRAPH)

    assert handles(changed) == {0xB: 1}
    assert calls.graphs.unknown_nodes == 0
