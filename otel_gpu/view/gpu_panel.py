"""What did programs ask of GPUs lately? Launches, copies, memory, waits, busy bounds and errors, for the page's first view."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..signals import cuda, hip
from ..signals.metrics import MetricSpec
from .histograms import Distribution
from .series import Number, Series, SeriesStore
from .timelines import NS, Window

_LINES, _ROWS = 7, 200
_REST = "others"


class _Family(NamedTuple):
    """How a vendor's metrics and attributes are called."""

    specs: Any
    prefix: str


_FAMILIES = (_Family(cuda, "cuda"), _Family(hip, "hip"))
_BOUND = "otel_gpu.bound"
_ERROR = "error.type"
_Key = tuple[str, ...]


class Query(NamedTuple):
    """Whose, and of how long ago."""

    resources: frozenset[int] | None
    seconds: float
    now_ns: int


class _Group(NamedTuple):
    """Series of one metric with the same values of some attributes."""

    key: _Key
    series: list[Series]

    @property
    def total(self) -> Number:
        return sum(s.total for s in self.series)

    @property
    def total_sum(self) -> Number:
        return sum(s.total_sum for s in self.series)


def gpu_panel(store: SeriesStore, query: Query) -> dict[str, Any]:
    """Return all that the view shows of GPUs; whoever calls holds the store's lock."""
    window = store.timelines.window(query.seconds, store.until_ns(query.resources, query.now_ns))
    panel = _Panel(store, query, window)
    return {
        "times": window.times,
        "step": window.width_ns / NS,
        "seconds": window.seconds,
        "launches": panel.launches(),
        "graphs": panel.graphs(),
        "copies": panel.copies(),
        "memory": panel.memory(),
        "waits": panel.waits(),
        "busy": panel.busy(),
        "errors": panel.errors(),
    }


class _Panel:
    """Reads the series of one query."""

    def __init__(self, store: SeriesStore, query: Query, window: Window) -> None:
        self._store, self._query, self._window = store, query, window

    def launches(self) -> dict[str, Any]:
        names = ("kernel.name",)
        direct = self._groups("KERNEL_LAUNCH_CALLS", names)
        graphs = self._groups("GRAPH_KERNEL_CALLS", names)
        grids, blocks = self._groups("KERNEL_GRID_SIZE", names), self._groups("KERNEL_BLOCK_SIZE", names)
        lines, rows = dict[str, Any](), []
        for key in direct.keys() | graphs.keys():
            own, within = self._series(direct, key), self._series(graphs, key)
            of_calls, of_graphs = self._rates(own), self._rates(within)
            lines[key[0]] = of_calls + of_graphs
            rows.append(
                {
                    "name": key[0],
                    "rate": float(of_calls.mean()),
                    "graph_rate": float(of_graphs.mean()),
                    "total": sum(s.total for s in own),
                    "graph_total": sum(s.total for s in within),
                }
            )
        shown = _cut(rows, lambda r: (-r["rate"] - r["graph_rate"], -r["total"] - r["graph_total"], r["name"]))
        for row in shown["rows"]:
            key = (row["name"],)
            row["blocks"], row["threads"] = _shape(self._series(grids, key)), _shape(self._series(blocks, key))
        return {
            **shown,
            "lines": _largest(lines, self._window.columns),
            "rate": sum(r["rate"] for r in rows),
            "total": sum(r["total"] for r in rows),
            "graph_rate": sum(r["graph_rate"] for r in rows),
            "graph_total": sum(r["graph_total"] for r in rows),
        }

    def graphs(self) -> dict[str, Any]:
        series = [s for group in self._groups("GRAPH_LAUNCH_CALLS", ()).values() for s in group.series]
        return {"total": sum(s.total for s in series), "rate": self._recent(series)}

    def copies(self) -> dict[str, Any]:
        rows, lines = [], dict[str, Any]()
        groups = self._groups("MEMORY_COPIES", ("memcpy.kind", "memory.host.type"))
        in_graphs = self._groups("GRAPH_MEMORY_COPIES", ("memcpy.kind", "memory.host.type"))
        for key in groups.keys() | in_graphs.keys():
            series = [*self._series(groups, key), *self._series(in_graphs, key)]
            kind, host = key
            total, size = sum(s.total for s in series), sum(s.total_sum for s in series)
            line = self._sums(series)
            lines[kind] = lines.get(kind, 0) + line
            rows.append(
                {
                    "kind": kind,
                    "host": host,
                    "rate": self._recent(series),
                    "byte_rate": float(line.sum()) * self._window.width_ns / NS / self._window.seconds,
                    "total": total,
                    "bytes": size,
                    "mean": size / total if total else 0,
                }
            )
        return {
            **_cut(rows, lambda r: (-r["bytes"], r["kind"], r["host"])),
            "lines": _largest(lines, self._window.columns),
            "bytes": sum(r["bytes"] for r in rows),
            "byte_rate": sum(r["byte_rate"] for r in rows),
        }

    def memory(self) -> dict[str, Any]:
        kinds = ("memory.type",)
        usage = self._groups("MEMORY_USAGE", kinds)
        allocated, freed = self._groups("MEMORY_ALLOCATIONS", kinds), self._groups("MEMORY_FREE_BYTES", kinds)
        lines, rows = {}, []
        for key in usage.keys() | allocated.keys():
            series = self._series(usage, key)
            line = self._levels(series)
            lines[key[0]] = line
            known = line[~np.isnan(line)]
            now = sum(s.total for s in series if s.is_live(self._query.now_ns))
            rows.append(
                {
                    "type": key[0],
                    "bytes": now,
                    "peak": max(now, int(known.max()) if known.size else 0),
                    "allocated": sum(s.total for s in self._series(allocated, key)),
                    "freed": sum(s.total for s in self._series(freed, key)),
                }
            )
        return {
            **_cut(rows, lambda r: (-r["bytes"], r["type"])),
            "lines": _largest(lines, self._window.columns),
            "bytes": sum(r["bytes"] for r in rows),
        }

    def waits(self) -> dict[str, Any]:
        rows, lines = [], {}
        for key, group in self._groups("SYNCHRONIZE_DURATION", ("function",)).items():
            spread = Distribution()
            for series in group.series:
                series.add_to(spread)
            line = self._sums(group.series)
            lines[key[0]] = line
            exemplars = [s.exemplar for s in group.series if s.exemplar is not None]
            latest = max(exemplars, key=lambda e: e.time_ns, default=None)
            rows.append(
                {
                    "function": key[0],
                    "rate": self._recent(group.series),
                    "total": group.total,
                    "seconds": group.total_sum,
                    "mean": group.total_sum / group.total if group.total else 0,
                    "p50": spread.quantile(0.5),
                    "p99": spread.quantile(0.99),
                    "share": float(line.mean()),
                    "trace": latest.trace_id if latest is not None else None,
                }
            )
        return {
            **_cut(rows, lambda r: (-r["seconds"], r["function"])),
            "lines": _largest(lines, self._window.columns),
            "share": sum(r["share"] for r in rows),
            "seconds": sum(r["seconds"] for r in rows),
        }

    def busy(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for series in self._store.of(cuda.BUSY_TIME.name, resources=self._query.resources):
            bound = str(dict(series.attributes).get(_BOUND, ""))
            line, total = found.get(bound, (np.zeros(self._window.columns), 0.0))
            found[bound] = (line + self._rates([series]), total + series.total)
        # Several processes share a GPU: what each of them had of it adds up to more than all of its time.
        return {
            bound: {"line": line, "seconds": total, "now": float(line[-10:].mean())}
            for bound, (line, total) in found.items()
        }

    def errors(self) -> dict[str, Any]:
        groups = self._groups("ERRORS", ("function", _ERROR))
        rows = [
            {"function": k[0], "error": k[1], "total": g.total, "rate": self._recent(g.series)}
            for k, g in groups.items()
        ]
        return {**_cut(rows, lambda r: (-r["total"], r["function"])), "total": sum(r["total"] for r in rows)}

    def _groups(self, spec: str, attributes: tuple[str, ...]) -> dict[_Key, _Group]:
        """Return the series of a metric of each vendor, by what some attributes say."""
        groups: dict[_Key, _Group] = {}
        for family in _FAMILIES:
            metric: MetricSpec | None = getattr(family.specs, spec, None)
            if metric is None:
                continue
            keys = [a if a == _ERROR else f"{family.prefix}.{a}" for a in attributes]
            for series in self._store.of(metric.name, resources=self._query.resources):
                said = dict(series.attributes)
                key = tuple(str(said.get(k, "")) for k in keys)
                groups.setdefault(key, _Group(key, [])).series.append(series)
        return groups

    @staticmethod
    def _series(groups: dict[_Key, _Group], key: _Key) -> list[Series]:
        found = groups.get(key)
        return found.series if found is not None else []

    def _rates(self, series: Iterable[Series]) -> Any:
        rows = (one.row for one in series)
        return self._store.timelines.total(rows, self._window) / (self._window.width_ns / NS)

    def _sums(self, series: Iterable[Series]) -> Any:
        rows = (one.sums for one in series if one.sums is not None)
        return self._store.timelines.total(rows, self._window) / (self._window.width_ns / NS)

    def _recent(self, series: Iterable[Series]) -> float:
        return float(self._rates(series).mean())

    def _levels(self, series: Iterable[Series]) -> Any:
        line = np.full(self._window.columns, np.nan)
        for one in series:
            values = self._store.timelines.read(one.row, self._window)
            line = np.where(np.isnan(line), values, line + np.nan_to_num(values))
        return line


def _shape(series: list[Series]) -> dict[str, Any] | None:
    """Return how large grids or blocks are."""
    spread, count, total = Distribution(), 0, 0.0
    for one in series:
        one.add_to(spread)
        count += int(one.total)
        total += one.total_sum
    if not count:
        return None
    return {"mean": total / count, "buckets": [[bound, n] for bound, n in spread.bounds()][-64:]}


def _largest(lines: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the lines with the most in them, and the others as one."""
    order = sorted(lines, key=lambda name: (-float(np.nansum(lines[name])), name))
    drawn = [{"name": name, "values": lines[name]} for name in order[:_LINES]]
    if rest := order[_LINES:]:
        together = np.zeros(count)
        for name in rest:
            together += np.nan_to_num(lines[name])
        drawn.append({"name": f"{len(rest)} {_REST}", "values": together})
    return drawn


def _cut(rows: list[dict[str, Any]], order: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Return so many rows as a page shows, and how many more there are."""
    rows.sort(key=order)
    return {"rows": rows[:_ROWS], "more": max(0, len(rows) - _ROWS)}
