"""What do metrics say that have no picture of their own? Tables: a row for each set of attributes, a column for each metric.

So NCCL's and RDMA's metrics are shown, and the agent's of itself: whatever is sent under these names has its place.
"""

from __future__ import annotations

from typing import Any

from ..signals.self_metrics import EVENTS_LOST
from .gpu_panel import Query
from .series import Kind, Series, SeriesStore
from .timelines import Window

_MAX_ROWS, _MAX_COLUMNS, _MAX_TABLES = 200, 64, 60
FABRIC = {"nccl": ("nccl.",), "rdma": ("rdma.",), "hardware": ("hw.", "gpu.nvml.")}
_ABOUT_AGENT = ("otel_gpu.", "process.", "otel.sdk.")


def fabric(store: SeriesStore, query: Query) -> dict[str, Any]:
    """Return the tables of what connects GPUs, and of the GPUs themselves."""
    window = store.timelines.window(query.seconds, store.until_ns(query.resources, query.now_ns))
    return {
        name: _tables(store, query, window, [n for n in store.names() if n.startswith(prefixes)])
        for name, prefixes in FABRIC.items()
    }


def agents(store: SeriesStore, query: Query) -> list[dict[str, Any]]:
    """Return the tables of what agents say of themselves."""
    window = store.timelines.window(query.seconds, store.until_ns(query.resources, query.now_ns))
    return _tables(store, query, window, [n for n in store.names() if n.startswith(_ABOUT_AGENT)])


def lost(store: SeriesStore) -> int:
    """Return how much agents could not count in full, by their own word."""
    return int(sum(s.total for s in store.of(EVENTS_LOST.name)))


def _tables(store: SeriesStore, query: Query, window: Window, names: list[str]) -> list[dict[str, Any]]:
    found = []
    for name in names[:_MAX_TABLES]:
        series = list(store.of(name, resources=query.resources))
        if not series:
            continue
        keys = sorted({key for s in series[:_MAX_ROWS] for key, _ in s.attributes})[:_MAX_COLUMNS]
        rows = [_row(store, window, query, s, keys) for s in series[:_MAX_ROWS]]
        rows.sort(key=lambda r: (r["process"], [str(a) for a in r["attributes"]]))
        found.append(
            {
                "name": name,
                "unit": series[0].metric.unit,
                "kind": series[0].metric.kind.value,
                "description": store.descriptions.get(name, ""),
                "attributes": keys,
                "rows": rows,
                "more": max(0, len(series) - _MAX_ROWS),
            }
        )
    return found


def _row(store: SeriesStore, window: Window, query: Query, series: Series, keys: list[str]) -> dict[str, Any]:
    said = dict(series.attributes)
    row: dict[str, Any] = {
        "process": series.resource.name,
        "attributes": [said.get(key) for key in keys],
        "value": series.total,
        "live": series.is_live(query.now_ns),
    }
    if series.metric.kind is not Kind.LEVEL:
        row["rate"] = float(store.timelines.read(series.row, window).sum()) / window.seconds
    if series.metric.kind is Kind.HISTOGRAM:
        spread = series.distribution()
        row["sum"] = series.total_sum
        row["mean"] = series.total_sum / series.total if series.total else 0
        row["p50"], row["p99"] = spread.quantile(0.5), spread.quantile(0.99)
    return row
