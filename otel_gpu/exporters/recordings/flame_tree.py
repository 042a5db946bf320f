"""What does a flame graph draw? A tree of frames, root first, with the value of each and of its lines.

Frames of one function are one node whatever their line, so that the picture stays legible; the lines
keep their share of the value for the tooltip. Columns instead of nested nodes: no recursion, small JSON.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...signals.frame_names import clean, label
from ...signals.profiles import Frame, FrameKind, Profile
from ...signals.structs import Frozen, Record

MAX_NODES = 40_000
"""Nodes drawn: a browser stays quick, and the smaller ones are thinner than a thousandth of a pixel."""
_MAX_LINES = 8
_NAME_LIMIT = 1000

_NodeKey = tuple[FrameKind, str, str]


class Node(Record):
    """One frame in the tree; `values` has one entry for each recording."""

    key: _NodeKey
    parent: int
    values: list[int]
    lines: dict[int, int] = msgspec.field(default_factory=dict)
    children: dict[_NodeKey, int] = msgspec.field(default_factory=dict)

    @property
    def weight(self) -> int:
        return sum(self.values)


class FlameTree(Frozen):
    """Nodes in an order in which parents come first; node 0 is the root."""

    nodes: list[Node]
    left_out: int
    """How many nodes were too small to keep."""
    negative: int
    """Sum of the values below zero, which have no width to draw."""


def flame_tree(recordings: Sequence[Profile | None], max_nodes: int = MAX_NODES) -> FlameTree:
    """Build the tree of one recording, or of two to be compared; None is a recording without this profile."""
    n = len(recordings)
    nodes = [Node((FrameKind.MARKER, "all", ""), -1, [0] * n)]
    keys: dict[Frame, _NodeKey] = {}
    negative = 0
    for column, profile in enumerate(recordings):
        for sample in profile.samples if profile is not None else ():
            if sample.value <= 0:
                negative += sample.value
                continue
            at = 0
            nodes[0].values[column] += sample.value
            for frame in reversed(sample.stack):
                key = keys.get(frame)
                if key is None:
                    key = keys[frame] = (frame.kind, clean(label(frame), _NAME_LIMIT), _place(frame))
                parent = nodes[at]
                child = parent.children.get(key)
                if child is None:
                    child = parent.children[key] = len(nodes)
                    nodes.append(Node(key, at, [0] * n))
                at = child
                node = nodes[at]
                node.values[column] += sample.value
                if frame.line > 0:
                    node.lines[frame.line] = node.lines.get(frame.line, 0) + sample.value
    kept = _largest(nodes, max_nodes)
    return FlameTree(kept, len(nodes) - len(kept), negative)


def _place(frame: Frame) -> str:
    if frame.filename:
        return clean(frame.filename, _NAME_LIMIT)
    return clean(frame.mapping.path, _NAME_LIMIT) if frame.mapping is not None else ""


def _largest(nodes: list[Node], max_nodes: int) -> list[Node]:
    """Keep the largest nodes. A parent is never smaller than its child and comes before it, so it stays as well."""
    if len(nodes) <= max_nodes:
        return nodes
    by_size = sorted(range(len(nodes)), key=lambda i: -nodes[i].weight)
    kept = sorted(by_size[:max_nodes])
    position = {old: new for new, old in enumerate(kept)}
    for old in kept[1:]:
        nodes[old].parent = position[nodes[old].parent]
    return [nodes[i] for i in kept]


def top_lines(node: Node) -> list[int]:
    """Return the lines that make up most of a node, flat: line, value, line, value, ..."""
    largest = sorted(node.lines.items(), key=lambda item: -item[1])[:_MAX_LINES]
    return [n for pair in largest for n in pair]
