"""How does a flame graph look as a picture? One SVG without a script: widths are shares, so that it fits any page.

Each profile is a graph of its own, one below the other. What a frame is, and how much of the profile, is said where a pointer
rests on it. Names come from observed programs: they are text, escaped, and nothing else.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...signals.frame_names import clean, distinct_process_names
from ...signals.profiles import Profile, ProfileType, counterparts, is_by_rate
from .flame_tree import FlameTree, Node, flame_tree

_ROW = 19
_HEAD = 58
_GAP = 26
_MIN_SHARE = 0.0003
"""Of the width; narrower frames are not drawn."""
_MAX_NODES = 12_000
_LABEL_SHARE = 0.006
"""Of the width; narrower frames have no room for a letter."""
_UNITS = {"bytes": "B", "nanoseconds": "ns"}

_STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.page { fill: #fff; } .ink { fill: #1c2330; } .soft { fill: #667085; } .label { fill: #16202c; font-size: 12px; }
.frame { stroke: #fff; stroke-width: 1; } g:hover > .frame { stroke: #1c2330; stroke-width: 2; }
.all { fill: #d2d6dd; } .cpython { fill: #93bcea; } .native { fill: #f6c878; } .kernel { fill: #ec9d8b; }
.cuda { fill: #9fcf78; } .marker { fill: #cbb9e0; } .truncated { fill: #b3b9c4; }
@media (prefers-color-scheme: dark) {
  .page { fill: #14171d; } .ink { fill: #e7eaf0; } .soft { fill: #98a2b3; } .frame { stroke: #14171d; }
  g:hover > .frame { stroke: #e7eaf0; }
}
"""


class _Graph(NamedTuple):
    kind: ProfileType
    process: str
    tree: FlameTree
    scales: tuple[float, ...]
    """What the values of each recording are multiplied with."""
    per_second: bool
    duration_s: float


def encode_svg(profiles: Sequence[Profile]) -> str:
    """Draw profiles, one below the other."""
    names = distinct_process_names(list(profiles))
    return _render(
        [
            _Graph(p.type, names[p.resource], flame_tree([p], _MAX_NODES), (1.0,), False, p.duration_ns / 1e9)
            for p in profiles
        ]
    )


def encode_svg_difference(before: Sequence[Profile], after: Sequence[Profile]) -> str:
    """Draw how each profile of `after` differs from its counterpart in `before`; by rate where one took longer."""
    names = distinct_process_names([*after, *before])
    graphs = []
    for old, new in counterparts(before, after):
        present = new or old
        assert present is not None
        by_rate = is_by_rate(old, new)
        scales = tuple(1e9 / p.duration_ns if by_rate and p is not None else 1.0 for p in (old, new))
        tree = flame_tree([old, new], _MAX_NODES)
        name = names[present.resource]
        graphs.append(_Graph(present.type, name, tree, scales, by_rate, present.duration_ns / 1e9))
    return _render(graphs)


def _render(graphs: Sequence[_Graph]) -> str:
    parts: list[str] = []
    y = 0
    for graph in graphs:
        drawn, height = _draw(graph, y)
        parts += drawn
        y += height + _GAP
    height = max(y, _HEAD)
    if not graphs:
        parts.append('<text class="ink" x="16" y="32" font-size="14">Nothing was recorded.</text>')
    title = ", ".join(dict.fromkeys(g.kind.title for g in graphs)) or "Nothing recorded"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" role="img">\n'
        f"<title>{_text(title)} · otel-gpu</title>\n<style>{_STYLE}</style>\n"
        f'<rect class="page" width="100%" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _draw(graph: _Graph, top: int) -> tuple[list[str], int]:
    """Return the elements of one graph, and its height."""
    nodes = graph.tree.nodes
    totals = [value * scale for value, scale in zip(nodes[0].values, graph.scales)]
    whole = sum(totals)
    parts = [
        f'<text class="ink" x="16" y="{top + 28}" font-size="17" font-weight="650">{_text(_heading(graph))}</text>',
        f'<text class="soft" x="16" y="{top + 47}" font-size="12.5">{_text(_facts(graph, totals))}</text>',
    ]
    if not whole:
        parts.append(f'<text class="soft" x="16" y="{top + _HEAD + 14}" font-size="13">Nothing was recorded.</text>')
        return parts, _HEAD + _ROW
    # What is drawn is drawn within a margin, in shares of what is left.
    parts.append(f'<svg x="1%" y="{top + _HEAD}" width="98%" overflow="visible">')
    deepest = 0
    for place in _places(graph, whole):
        deepest = max(deepest, place.depth)
        parts.append(_frame(graph, place, totals))
    parts.append("</svg>")
    return parts, _HEAD + (deepest + 1) * _ROW


class _Place(NamedTuple):
    node: Node
    depth: int
    start: float
    share: float


def _places(graph: _Graph, whole: float) -> Iterator[_Place]:
    """Yield where frames are drawn, the largest of a caller's first; without those too narrow to see."""
    nodes = graph.tree.nodes
    widths = [sum(v * scale for v, scale in zip(n.values, graph.scales)) / whole for n in nodes]
    children: list[list[int]] = [[] for _ in nodes]
    for number, node in enumerate(nodes[1:], 1):
        if widths[number] >= _MIN_SHARE:
            children[node.parent].append(number)
    waiting = [(0, 0, 0.0)]
    while waiting:
        number, depth, start = waiting.pop()
        yield _Place(nodes[number], depth, start, widths[number])
        for child in sorted(children[number], key=lambda i: (-widths[i], nodes[i].key[1])):
            waiting.append((child, depth + 1, start))
            start += widths[child]


def _frame(graph: _Graph, place: _Place, totals: Sequence[float]) -> str:
    node, y = place.node, place.depth * _ROW
    x, width = f"{100 * place.start:.4f}%", f"{100 * place.share:.4f}%"
    values = [value * scale for value, scale in zip(node.values, graph.scales)]
    kind, name, file = node.key
    colour = f'class="frame {"all" if node.parent < 0 else kind.value}"'
    if len(values) > 1:
        colour = f'class="frame" fill="{_changed(*values)}"'
    said = _amounts(graph, values, totals)
    where = f"\n{file}" if file else ""
    label = ""
    if place.share >= _LABEL_SHARE:
        label = (
            f'<svg x="{x}" y="{y}" width="{width}" height="{_ROW}" overflow="hidden">'
            f'<text class="label" x="5" y="13.5">{_text(name)}</text></svg>'
        )
    box = f'<rect {colour} x="{x}" y="{y}" width="{width}" height="{_ROW}" rx="2"/>'
    return f"<g><title>{_text(name)}{_text(where)}\n{_text(said)}</title>{box}{label}</g>"


def _amounts(graph: _Graph, values: Sequence[float], totals: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{_amount(graph, values[0])}, {_share(values[0], totals[0])}"
    old, new = values
    grown = f" ({(new - old) / old:+.1%})" if old else " (new)" if new else ""
    return f"{_amount(graph, old)} before, {_amount(graph, new)} after{grown}"


def _heading(graph: _Graph) -> str:
    return f"{graph.kind.title}{': difference' if len(graph.scales) > 1 else ''} · {graph.process}"


def _facts(graph: _Graph, totals: Sequence[float]) -> str:
    if len(totals) > 1:
        return f"{_amount(graph, totals[0])} before, {_amount(graph, totals[1])} after"
    lost = f", {graph.tree.left_out:,} frames too narrow to see" if graph.tree.left_out else ""
    return f"{_amount(graph, totals[0])} in {graph.duration_s:.1f} s{lost}"


def _amount(graph: _Graph, value: float) -> str:
    number = f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.3g}"
    unit = _UNITS.get(graph.kind.unit, "")
    return f"{number}{' ' + unit if unit else ''}{'/s' if graph.per_second else ''}"


def _share(value: float, total: float) -> str:
    return f"{value / total:.1%}" if total else "-"


def _changed(old: float, new: float) -> str:
    """Return a colour: red for what grew, blue for what shrank, the stronger the more."""
    change = (new - old) / (old + new) if old + new else 0.0
    if not change:
        return "hsl(220, 10%, 84%)"
    strength = abs(change) ** 0.5
    return f"hsl({6 if change > 0 else 214}, {30 + 58 * strength:.0f}%, {88 - 24 * strength:.0f}%)"


def _text(text: str) -> str:
    """Return a text as XML can hold it."""
    return "\n".join(html.escape(clean(line)) for line in text.split("\n"))
