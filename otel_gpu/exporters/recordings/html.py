"""How does a flame graph reach a browser? One HTML file with its data, style and library inside, no network.

Everything from the observed processes travels as JSON in which no markup can be closed, and the page
only ever sets text, never HTML. What is read of such a page is what it draws: functions without their lines.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

from ...signals.frame_names import clean, distinct_process_names
from ...signals.metrics import Resource, attributes
from ...signals.profiles import (
    PROFILE_TYPES,
    FileMapping,
    Frame,
    FrameKind,
    Profile,
    ProfileBuilder,
    ProfileType,
    Stack,
    counterparts,
    is_by_rate,
)
from .flame_tree import MAX_NODES, FlameTree, flame_tree, top_lines
from .tables import FrameBudget, entry

_ASSETS = files(__package__) / "assets"
_WHEN = "%Y-%m-%d %H:%M:%S UTC"
_KINDS = [kind.value for kind in FrameKind]
_DATA = re.compile(rb'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
"""Where the page has what it draws: no text of a recording can close the element, or open another one before it."""
_UNSAFE_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def encode_html(profiles: Sequence[Profile]) -> str:
    """Draw profiles as one page; a reader chooses among them when there are several."""
    names = distinct_process_names(list(profiles))
    page = _Page()
    for profile in profiles:
        page.add([profile], names[profile.resource])
    return page.render()


def encode_html_difference(before: Sequence[Profile], after: Sequence[Profile]) -> str:
    """Draw how each profile of `after` differs from its counterpart in `before`."""
    names = distinct_process_names([*after, *before])
    page = _Page()
    for old, new in counterparts(before, after):
        present = new or old
        assert present is not None
        page.add([old, new], names[present.resource])
    return page.render()


def page_data(recordings: Sequence[Profile | None]) -> dict[str, Any]:
    """Return what the page draws of one recording, or of how a second one differs from it; of none at all an empty page."""
    page = _Page()
    present = [recording for recording in recordings if recording is not None]
    if present:
        page.add(recordings, distinct_process_names(present)[present[-1].resource])
    return page.data()


def decode_html(data: bytes) -> list[Profile]:
    """Return the profiles that a page of ours draws."""
    found = _DATA.search(data)
    if found is None:
        raise ValueError("it is no flame graph of otel-gpu")
    page = json.loads(found[1])
    resources = [_read_resource(pairs) for pairs in page["processes"]]
    budget = FrameBudget()
    return [_read_graph(graph, page, entry(resources, graph["processIndex"]), budget) for graph in page["graphs"]]


def _read_resource(pairs: Sequence[tuple[str, str]]) -> Resource:
    known: dict[str, str] = {str(key): str(value) for key, value in pairs}
    pid = known.pop("process.pid", "")
    return Resource(attributes({**known, "process.pid": int(pid) if pid else None}))


def _read_graph(graph: dict[str, Any], page: dict[str, Any], resource: Resource, budget: FrameBudget) -> Profile:
    if graph["differential"]:
        raise ValueError("it compares two recordings")
    columns, strings = graph["columns"], page["strings"]
    parents, (values,) = columns["parent"], columns["values"]
    if (
        len(parents) > MAX_NODES
        or len({len(columns[c]) for c in ("parent", "kind", "name", "place")} | {len(values)}) > 1
    ):
        raise ValueError("a graph with too many nodes, or nodes without a value")
    frames = [
        _read_frame(entry(strings, columns["name"][i]), entry(strings, columns["place"][i]), entry(page["kinds"], kind))
        for i, kind in enumerate(columns["kind"])
    ]
    own = list(values)
    for i, parent in enumerate(parents[1:], 1):
        if not 0 <= parent < i:
            raise ValueError("a node before its caller")
        own[parent] -= values[i]
    started = datetime.strptime(graph["when"], _WHEN).replace(tzinfo=timezone.utc)
    builder = ProfileBuilder(_read_type(graph), resource, int(started.timestamp()) * 1_000_000_000)
    for i, value in enumerate(own):
        if value > 0:
            builder.add(_read_stack(i, parents, frames, budget), value)
    return builder.build(builder.start_ns + int(graph["durations"][0]))


def _read_stack(node: int, parents: Sequence[int], frames: Sequence[Frame], budget: FrameBudget) -> Stack:
    stack = []
    while node:  # the first node stands for all
        stack.append(frames[node])
        node = parents[node]
    budget.spend(len(stack))
    return tuple(stack)


def _read_frame(name: str, place: str, kind: str) -> Frame:
    if kind == FrameKind.NATIVE and place:
        return Frame(FrameKind.NATIVE, name, mapping=FileMapping(place))
    return Frame(FrameKind(kind), name, place)


def _read_type(graph: dict[str, Any]) -> ProfileType:
    title, unit, each = str(graph["title"]), str(graph["unit"]), int(graph["nanosecondsEach"])
    for known in PROFILE_TYPES.values():
        if (known.title, known.unit) == (title, unit):
            return known.every(each) if each else known
    return ProfileType(title, unit, title, unit, 1, title, "")


class _Page:
    """Collects the graphs of one file; strings are held once."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {}
        self._graphs: list[dict[str, Any]] = []
        self._processes: dict[Resource, int] = {}

    def add(self, recordings: Sequence[Profile | None], process: str) -> None:
        """Add one graph: of one recording, or of two to be compared."""
        present = [p for p in recordings if p is not None]
        last = present[-1]
        tree = flame_tree(recordings)
        kind = last.type
        by_rate = len(recordings) > 1 and is_by_rate(recordings[0], recordings[1])
        self._graphs.append(
            {
                "title": clean(kind.title),
                "description": clean(kind.description),
                "unit": clean(kind.unit),
                "nanosecondsEach": _nanoseconds_each(kind),
                "process": process,
                "processIndex": self._processes.setdefault(last.resource, len(self._processes)),
                "when": datetime.fromtimestamp(last.start_ns / 1e9, tz=timezone.utc).strftime(_WHEN),
                "differential": len(recordings) > 1,
                "totals": tree.nodes[0].values,
                "stacks": [len(p.samples) if p else 0 for p in recordings],
                "truncated": [p.truncated if p else 0 for p in recordings],
                "durations": [p.duration_ns if p else 0 for p in recordings],
                "perSecond": by_rate,
                "notes": _notes(tree, present, by_rate=by_rate),
                "columns": self._columns(tree, len(recordings)),
            }
        )

    def _columns(self, tree: FlameTree, recordings: int) -> dict[str, Any]:
        nodes = tree.nodes
        return {
            "parent": [n.parent for n in nodes],
            "kind": [_KINDS.index(n.key[0].value) for n in nodes],
            "name": [self._string(n.key[1]) for n in nodes],
            "place": [self._string(n.key[2]) for n in nodes],
            "values": [[n.values[i] for n in nodes] for i in range(recordings)],
            "lines": [top_lines(n) or 0 for n in nodes],
        }

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def data(self) -> dict[str, Any]:
        """Return what the page's script reads."""
        return {
            "strings": list(self._strings),
            "kinds": _KINDS,
            "processes": [[[clean(k), clean(str(v))] for k, v in r.attributes] for r in self._processes],
            "graphs": self._graphs,
        }

    def render(self) -> str:
        """Return the page."""
        first = self._graphs[0] if self._graphs else {"title": "Nothing recorded", "process": "otel-gpu"}
        parts = {
            "title": html.escape(f"{first['title']} · {first['process']} · otel-gpu"),
            "style": _asset("flame_graph.css"),
            "library": _asset("d3-flame-graph.min.js"),
            "script": _asset("flame_graph.js"),
            "data": json.dumps(self.data(), separators=(",", ":")).translate(_UNSAFE_IN_SCRIPT),
        }
        # One pass, so that a part which holds a placeholder's text is left as it is.
        return re.sub("@(" + "|".join(parts) + ")@", lambda m: parts[m[1]], _asset("flame_graph.html"))


def _notes(tree: FlameTree, recordings: Sequence[Profile], *, by_rate: bool) -> list[str]:
    notes = []
    if tree.left_out:
        notes.append(f"{tree.left_out:,} frames too narrow to see are not drawn; their callers' totals include them.")
    if tree.negative:
        notes.append(f"Values below zero, {tree.negative:,} in all, are not drawn.")
    if by_rate:
        lengths = " and ".join(f"{p.duration_ns / 1e9:.1f} s" for p in recordings)
        notes.append(f"The recordings differ in length, {lengths}: values are those of a second.")
    return notes


def _nanoseconds_each(kind: ProfileType) -> int:
    """Return what one counted sample stands for, when it stands for time."""
    return kind.period if kind.unit == "count" and kind.period_unit == "nanoseconds" else 0


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
