"""What is in a CUDA graph? Learnt at capture, by explicit node calls, at instantiation and update.

An executable graph's launches are counted in the kernel under a version, a number that is new after each
change; here each version has its contents. Structures are read as cuda.h lays them out.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

import msgspec

from ...bpf.abi.events import NodeType
from ...bpf.abi.rows import BUCKET_ZERO, CopyKind, HostMemory
from ...signals.structs import Record

_MAX_NODES = 1 << 20
"""Of one graph, counted without its further nodes when it is larger, and of all large executable ones."""
_MAX_VERSIONS = 65_536
_MAX_GRAPHS = 8_192
"""Of one program, that it has not destroyed; the oldest is forgotten."""
_LARGE = 1_000
"""From how many nodes on a graph's copies count against the bound of nodes in all of them."""
_MAX_CAPTURES = 4_096


class Node(NamedTuple):
    """One node's work: a kernel's handle and buckets, or bytes with what moves them."""

    type: NodeType
    value: int
    detail: int


Contents = Counter[Node]


class _Graph(Record):
    anonymous: Contents = msgspec.field(default_factory=Counter)
    """Captured nodes, whose handles nobody told."""
    nodes: dict[int, Node] = msgspec.field(default_factory=dict)
    children: dict[int, _Graph] = msgspec.field(default_factory=dict)
    disabled: set[int] = msgspec.field(default_factory=set)
    bodies: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """The graphs that conditional nodes own, which go with them."""

    def copy(self) -> _Graph:
        return _Graph(
            Counter(self.anonymous),
            dict(self.nodes),
            {n: g.copy() for n, g in self.children.items()},
            set(self.disabled),
        )

    def updated(self, graph: _Graph) -> _Graph:
        """Return this executable graph with the work of another; its nodes keep their handles, and stay disabled."""
        fresh = graph.copy()
        if len(fresh.nodes) == len(self.nodes) and len(fresh.children) == len(self.children):
            fresh.nodes = dict(zip(self.nodes, fresh.nodes.values(), strict=True))
            fresh.children = dict(zip(self.children, fresh.children.values(), strict=True))
            fresh.disabled = self.disabled
        return fresh

    def contents(self) -> Contents:
        total = Counter(self.anonymous)
        total.update(node for handle, node in self.nodes.items() if handle not in self.disabled)
        for handle, child in self.children.items():
            if handle not in self.disabled:
                total.update(child.contents())
        return total

    def __len__(self) -> int:
        return self.anonymous.total() + len(self.nodes) + sum(1 + len(g) for g in self.children.values())


class Graphs:
    """The graphs of one program."""

    def __init__(self, key: Callable[[int], int] = int) -> None:
        """`key` says which kernel a handle is now."""
        self._key = key
        self._captures: OrderedDict[int, Contents] = OrderedDict()
        self._graphs: dict[int, _Graph] = {}
        self._owner: dict[int, int] = {}
        self._execs: dict[int, _Graph] = {}
        self._latest: dict[int, int] = {}
        self._versions: OrderedDict[int, Contents] = OrderedDict()
        self.may_launch_on_device = False
        """Can kernels launch graphs, of which the host knows nothing?"""
        self.unknown_nodes = 0
        """Changes to nodes that were captured, and cannot be told apart."""

    def contents(self, version: int) -> Contents | None:
        """Return what one launch of a version executes; None where nobody saw it being made."""
        return self._versions.get(version)

    def captured(self, capture: int, node: Node) -> None:
        """Note a node that a capture recorded."""
        contents = self._captures.setdefault(capture, Counter())
        # A graph that was launched meanwhile is a child, of what it executes now. One that nobody saw being made stays.
        added = self._versions.get(node.value) if node.type is NodeType.GRAPH else None
        if added is None:
            added = Counter((node,))
        if contents.total() + added.total() <= _MAX_NODES:
            contents.update(added)
        if len(self._captures) > _MAX_CAPTURES:
            self._captures.popitem(last=False)

    def called(self, function: str, out: int, ident: int, arguments: tuple[int, ...], data: bytes) -> None:
        """Note a call about graphs that succeeded; others are ignored."""
        match function:
            case "cuStreamEndCapture":
                self._graph(out).anonymous.update(self._captures.pop(ident, Counter()))
            case "cuGraphAddKernelNode" | "cuGraphAddMemcpyNode" | "cuGraphAddMemsetNode" | "cuGraphAddNode":
                self._set(self._graph(arguments[1]), out, _parse(function, data))
                self._owner[out] = arguments[1]
                if bodies := _bodies(function, data):
                    self._own(self._graph(arguments[1]), out, bodies)
                if (child := _child(function, data)) is not None:
                    self._adopt(arguments[1], out, child)
            case "cuGraphAddChildGraphNode":
                self._adopt(arguments[1], out, arguments[4])
            case "cuGraphClone":
                clone = self._graph(arguments[1]).copy()
                self._graph(out)
                self._graphs[out] = clone
            case "cuGraphNodeFindInClone":
                self._find_in_clone(out, arguments[1], arguments[2])
            case "cuGraphDestroyNode":
                self._destroy_node(arguments[0])
            case "cuGraphDestroy":
                self._destroy(arguments[0])
            case (
                "cuGraphKernelNodeSetParams"
                | "cuGraphMemcpyNodeSetParams"
                | "cuGraphMemsetNodeSetParams"
                | "cuGraphNodeSetParams"
            ):
                if (owner := self._owner.get(arguments[0])) is not None:
                    self._change(self._graph(owner), arguments[0], function, data)
                else:
                    self.unknown_nodes += 1
            case "cuGraphInstantiate" | "cuGraphInstantiateWithFlags" | "cuGraphInstantiateWithParams":
                self._keep_exec(out, self._graph(arguments[1]).copy())
                self._publish(out, ident)
                if _instantiation_flags(function, arguments, data) & _DEVICE_LAUNCH:
                    self.may_launch_on_device = True
            case "cuGraphExecUpdate":
                before = self._execs.get(arguments[0], _Graph())
                self._keep_exec(arguments[0], before.updated(self._graph(arguments[1])))
                self._publish(arguments[0], ident)
            case "cuGraphExecDestroy":
                self._drop_exec(arguments[0])
            case "cuGraphNodeSetEnabled" if (exec_ := self._execs.get(arguments[0])) is not None:
                if arguments[2] & 0xFFFFFFFF:
                    exec_.disabled.discard(arguments[1])
                else:
                    exec_.disabled.add(arguments[1])
                if arguments[1] not in exec_.nodes and arguments[1] not in exec_.children:
                    self.unknown_nodes += 1
                self._publish(arguments[0], ident)
            case "cuGraphExecChildGraphNodeSetParams" if (exec_ := self._execs.get(arguments[0])) is not None:
                exec_.children[arguments[1]] = self._graph(arguments[2]).copy()
                self._publish(arguments[0], ident)
            case (
                "cuGraphExecKernelNodeSetParams"
                | "cuGraphExecMemcpyNodeSetParams"
                | "cuGraphExecMemsetNodeSetParams"
                | "cuGraphExecNodeSetParams"
            ) if (exec_ := self._execs.get(arguments[0])) is not None:
                if arguments[1] in exec_.nodes or arguments[1] in exec_.children:
                    self._change(exec_, arguments[1], function, data)
                else:
                    self.unknown_nodes += 1
                self._publish(arguments[0], ident)
            case _:
                pass

    def _graph(self, handle: int) -> _Graph:
        if handle not in self._graphs and len(self._graphs) >= _MAX_GRAPHS:
            self._destroy(next(iter(self._graphs)))
        return self._graphs.setdefault(handle, _Graph())

    def _keep_exec(self, handle: int, graph: _Graph) -> None:
        if handle not in self._execs and len(self._execs) >= _MAX_GRAPHS:
            self._drop_exec(next(iter(self._execs)))
        if len(graph) > _LARGE and sum(len(g) for g in self._execs.values()) > _MAX_NODES:
            self._drop_exec(next(iter(self._execs)))
        self._execs[handle] = graph

    def _drop_exec(self, handle: int) -> None:
        self._execs.pop(handle, None)
        self._latest.pop(handle, None)

    def _set(self, graph: _Graph, handle: int, node: Node | None) -> None:
        if node is not None and len(graph) < _MAX_NODES:
            if node.type is NodeType.KERNEL:
                node = node._replace(value=self._key(node.value))
            graph.nodes[handle] = node

    def _change(self, graph: _Graph, handle: int, function: str, data: bytes) -> None:
        if (child := _child(function, data)) is None:
            self._set(graph, handle, _parse(function, data))
        elif len(graph) + len(part := self._graph(child)) < _MAX_NODES:
            graph.children[handle] = part.copy()

    def _find_in_clone(self, node: int, original: int, graph: int) -> None:
        """Give a clone's node, which has its original's handle until somebody asks, its own."""
        clone = self._graph(graph)
        if original in clone.nodes or original in clone.children:
            clone.nodes = {node if n == original else n: work for n, work in clone.nodes.items()}
            clone.children = {node if n == original else n: part for n, part in clone.children.items()}
            self._owner[node] = graph

    def _adopt(self, graph: int, node: int, child: int) -> None:
        parent, part = self._graph(graph), self._graph(child)
        # Two graphs that take each other in, again and again, would grow without end.
        if graph != child and len(parent) + len(part) < _MAX_NODES:
            parent.children[node] = part.copy()
            self._owner[node] = graph

    def _own(self, graph: _Graph, node: int, bodies: tuple[int, ...]) -> None:
        graph.bodies[node] = bodies
        for body in bodies:
            self._destroy(body)

    def _destroy_node(self, node: int) -> None:
        owner = self._owner.pop(node, None)
        if owner is None:
            self.unknown_nodes += 1
            return
        graph = self._graph(owner)
        graph.nodes.pop(node, None)
        graph.children.pop(node, None)
        for body in graph.bodies.pop(node, ()):
            self._destroy(body)

    def _destroy(self, handle: int) -> None:
        doomed = [handle]
        while doomed:
            handle = doomed.pop()
            graph = self._graphs.pop(handle, None)
            if graph is None:
                continue
            for node in (*graph.nodes, *graph.children):
                # A clone's nodes have their originals' handles.
                if self._owner.get(node) == handle:
                    del self._owner[node]
            doomed += chain.from_iterable(graph.bodies.values())

    def _publish(self, exec_: int, version: int) -> None:
        contents, before = self._execs[exec_].contents(), self._latest.get(exec_)
        # Some programs update a graph at each step, and most often to what it was.
        if before is not None and self._versions.get(before) == contents:
            contents = self._versions[before]
        self._versions[version] = contents
        self._latest[exec_] = version
        while len(self._versions) > _MAX_VERSIONS:
            self._versions.popitem(last=False)


def copies(contents: Contents) -> Iterator[tuple[CopyKind, HostMemory, int, int]]:
    """Yield the copies of a graph: kind, host memory, bytes, how many."""
    for node, count in contents.items():
        if node.type is NodeType.COPY:
            yield CopyKind(node.detail & 0xFF), HostMemory(node.detail >> 8), node.value, count


_DEVICE_LAUNCH = 4  # of CUgraphInstantiate_flags
_EXECUTE_NOTHING = frozenset(range(3, 13))
"""Of CUgraphNodeType: host functions, children, events, semaphores, memory; a child is a graph of its own."""


def _instantiation_flags(function: str, arguments: tuple[int, ...], data: bytes) -> int:
    match function:
        case "cuGraphInstantiateWithFlags":
            return arguments[2]
        case "cuGraphInstantiateWithParams":
            return int(struct.unpack_from("<Q", data)[0])  # CUDA_GRAPH_INSTANTIATE_PARAMS
    return 0


# CUgraphNodeParams: type at 0, the parameters from 16 on; CUgraphNodeType 4 is a child graph.
_CHILD = 4
_PARAMETERS = 16
_BODIES_SIZE, _BODIES = _PARAMETERS + 12, 64
"""CUDA_CONDITIONAL_NODE_PARAMS has the size; the probes put the bodies behind it, for it has their address alone."""
_OF_ANY_TYPE = ("cuGraphAddNode", "cuGraphNodeSetParams", "cuGraphExecNodeSetParams")
_HOST, _UNIFIED = 1, 4


def _node_type(data: bytes) -> int:
    return int(struct.unpack_from("<i", data)[0])


def _child(function: str, data: bytes) -> int | None:
    """Return the graph that a node's parameters are about, None where they are about something else."""
    if function not in _OF_ANY_TYPE or _node_type(data) != _CHILD:
        return None
    return int(struct.unpack_from("<Q", data, _PARAMETERS)[0])


def _bodies(function: str, data: bytes) -> tuple[int, ...]:
    """Return the graphs that a new conditional node has; a SWITCH may have more than there was room for."""
    if function not in _OF_ANY_TYPE or _node_type(data) != NodeType.CONDITIONAL:
        return ()
    (size,) = struct.unpack_from("<I", data, _BODIES_SIZE)
    room = (len(data) - _BODIES) // 8
    return struct.unpack_from(f"<{min(size, room)}Q", data, _BODIES)


def _parse(function: str, data: bytes) -> Node | None:
    """Read a node's parameters out of the first bytes of their structure."""
    if "Kernel" in function:
        return _kernel(data, 0, 8, 56)
    if "Memcpy" in function:
        return _copy(data, 0)
    if "Memset" in function:
        return _memset(data, 0)
    match _node_type(data):
        case NodeType.KERNEL:
            return _kernel(data, _PARAMETERS, 8, 56)
        case NodeType.COPY:
            return _copy(data, _PARAMETERS + 16)
        case NodeType.MEMSET:
            return _memset(data, _PARAMETERS)
        case NodeType.CONDITIONAL:
            return Node(NodeType.CONDITIONAL, 0, 0)
        case other if other not in _EXECUTE_NOTHING:
            return Node(NodeType.UNKNOWN, 0, 0)
    return None


def _kernel(data: bytes, at: int, dims: int, kernel_at: int) -> Node:
    # CUDA_KERNEL_NODE_PARAMS: function, grid, block; a library's kernel stands behind, where the function is 0.
    (function,) = struct.unpack_from("<Q", data, at)
    if not function:
        (function,) = struct.unpack_from("<Q", data, at + kernel_at)
    gx, gy, gz, bx, by, bz = struct.unpack_from("<6I", data, at + dims)
    return Node(NodeType.KERNEL, function, _bucket(gx * gy * gz) | _bucket(bx * by * bz) << 8)


def _bucket(value: int) -> int:
    """Return the bucket as the kernel numbers it (ebpf/abi/)."""
    return (value - 1).bit_length() + 1 if value else BUCKET_ZERO


def _copy(data: bytes, at: int) -> Node | None:
    if at + 200 > len(data):
        return None
    (source,) = struct.unpack_from("<I", data, at + 32)
    (target,) = struct.unpack_from("<I", data, at + 120)
    width, height, depth = struct.unpack_from("<3Q", data, at + 176)
    if _UNIFIED in (source, target):
        kind = CopyKind.DEFAULT
    elif source == _HOST:
        kind = CopyKind.HOST_TO_HOST if target == _HOST else CopyKind.HOST_TO_DEVICE
    else:
        kind = CopyKind.DEVICE_TO_HOST if target == _HOST else CopyKind.DEVICE_TO_DEVICE
    return Node(NodeType.COPY, width * height * depth, kind)


def _memset(data: bytes, at: int) -> Node:
    # CUDA_MEMSET_NODE_PARAMS: address, pitch, value, element size, width, height.
    element, width, height = struct.unpack_from("<IQQ", data, at + 20)
    return Node(NodeType.MEMSET, element * width * max(height, 1), 0)
