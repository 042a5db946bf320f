"""How does a flame graph reach the page? As the one that recordings are shown by, its parts as files and its data beside them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from ..errors import OtelGpuError
from ..exporters.recordings.html import page_data
from ..signals.profiles import PROFILE_TYPES
from .profile_store import ProfileStore
from .resources import Resources

REPORT_ASSETS = ("flame_graph.css", "flame_graph.js", "d3-flame-graph.min.js")
_REPORTERS = files("otel_gpu.exporters.recordings") / "assets"
_UNSAFE = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
_INLINE = {
    "<style>@style@</style>": '<link rel="stylesheet" href="assets/flame_graph.css">\n'
    '<link rel="stylesheet" href="assets/flame_frame.css">',
    "<script>@library@</script>": '<script src="assets/d3-flame-graph.min.js"></script>',
    "<script>@script@</script>": '<script src="assets/flame_graph.js"></script>',
}


def kinds(store: ProfileStore, resources: Resources, chosen: frozenset[int] | None) -> list[dict[str, Any]]:
    """Return of which processes and types there are profiles, and from when to when."""
    found = []
    for (kind, number), (start_ns, end_ns) in store.kinds(chosen).items():
        entry = resources.get(number)
        if entry is not None:
            found.append(
                {
                    "type": kind.name,
                    "title": _title(kind.name, kind.title),
                    "process": number,
                    "name": entry.name,
                    "start": start_ns / 1e9,
                    "end": end_ns / 1e9,
                }
            )
    order = list(PROFILE_TYPES)
    found.sort(key=lambda k: (order.index(k["type"]) if k["type"] in order else len(order), k["name"]))
    return found


def page(
    store: ProfileStore, resources: Resources, kind: str, number: int, windows: list[tuple[int, int]]
) -> str | None:
    """Return the page of what happened in a window, or of how a second one differs; None where nothing is known of it."""
    entry = resources.get(number)
    if entry is None:
        return None
    found = [store.between(kind, number, entry.resource, *window) for window in windows]
    data = page_data(found) if any(found) else page_data([])
    return _framed(json.dumps(data, separators=(",", ":")).translate(_UNSAFE), entry.name)


def report_asset(name: str) -> bytes:
    """Return one of the files that recordings are shown by."""
    return (_REPORTERS / name).read_bytes()


def _framed(data: str, name: str) -> str:
    import html
    import re

    page = (_REPORTERS / "flame_graph.html").read_text(encoding="utf-8")
    for inline, linked in _INLINE.items():
        if inline not in page:
            raise OtelGpuError(f"the flame graph's page has no {inline}; the package is not whole: install it again")
        page = page.replace(inline, linked)
    page = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>\n?", "", page)
    # The data come last, and in one pass: they may hold a placeholder's text.
    parts = {"title": html.escape(f"{name} · otel-gpu"), "data": data}
    return re.sub("@(title|data)@", lambda m: parts[m[1]], page)


def _title(name: str, title: str) -> str:
    known = PROFILE_TYPES.get(name)
    return known.title if known is not None else title
