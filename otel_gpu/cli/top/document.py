"""What is an interval as JSON? One object; docs/top.md says what each key is."""

from __future__ import annotations

from collections.abc import Mapping

from ...signals.metrics import Buckets
from ...signals.quantiles import quantile
from .figures import Figures, Kernel, ProcessFigures
from .interval import Interval, added

Json = Mapping[str, object]


def document(interval: Interval, time_s: float) -> Json:
    """Return all that is known. What is per second is null where nothing came before."""
    now: Figures = interval.now
    return {
        "time": time_s,
        "seconds": interval.seconds,
        "processes": [_process(interval, key, one) for key, one in now.processes.items()],
        "gpus": [
            {
                "id": ident,
                "name": gpu.name,
                "utilization": gpu.utilization,
                "memory_used": gpu.memory_used,
                "memory_size": gpu.memory_size,
                "power": gpu.power,
                "temperature": gpu.temperature,
            }
            for ident, gpu in now.gpus.items()
        ],
        "lost": {event: count for event, count in now.lost.items() if count},
    }


def _process(interval: Interval, key: str, now: ProcessFigures) -> Json:
    before = interval.earlier(key)
    rate = interval.rate
    requests = added(now.requests, before.requests) if interval.seconds is not None else now.requests
    work = (
        added(now.request_launches, before.request_launches) if interval.seconds is not None else now.request_launches
    )
    return {
        "pid": now.pid,
        "service": now.service,
        "container": now.container or None,
        "pod": now.pod or None,
        "launches": now.launches,
        "launches_per_second": rate(now.launches, before.launches),
        "kernels_in_graphs": now.kernels_in_graphs,
        "kernels_in_graphs_per_second": rate(now.kernels_in_graphs, before.kernels_in_graphs),
        "graph_launches": now.graph_launches,
        "graph_launches_unexpanded": now.unexpanded,
        "graph_launches_per_second": rate(now.graph_launches, before.graph_launches),
        "kernels": [
            _kernel(interval, name, kernel, before.kernels.get(name) or Kernel())
            for name, kernel in sorted(now.kernels.items(), key=lambda k: -k[1].launches - k[1].in_graphs)
        ],
        "copies": [
            {
                "kind": direction.kind,
                "host_memory": direction.host_memory or None,
                "in_graphs": direction.in_graph,
                "count": copied.count,
                "count_per_second": rate(copied.count, _of(before.copies.get(direction)).count),
                "bytes": copied.sum,
                "bytes_per_second": rate(copied.sum, _of(before.copies.get(direction)).sum),
            }
            for direction, copied in now.copies.items()
        ],
        "memory": now.memory,
        "memory_untracked": now.untracked,
        "waits": [
            {
                "function": function,
                "count": waits.count,
                "seconds": waits.sum,
                "share": rate(waits.sum, _of(before.waits.get(function)).sum),
                "p50": quantile(added(waits, before.waits.get(function)), 0.5),
                "p99": quantile(added(waits, before.waits.get(function)), 0.99),
            }
            for function, waits in now.waits.items()
        ],
        "busy": {
            bound: {"seconds": seconds, "share": rate(seconds, before.busy.get(bound, 0.0))}
            for bound, seconds in now.busy.items()
        },
        "errors": [
            {"function": function, "error": error, "count": count} for (function, error), count in now.errors.items()
        ],
        "requests": {
            "count": now.requests.count,
            "per_second": rate(now.requests.count, before.requests.count),
            "mean": requests.sum / requests.count if requests.count else None,
            "p50": quantile(requests, 0.5),
            "p99": quantile(requests, 0.99),
            "launches_per_request": work.sum / work.count if work.count else None,
        }
        if now.requests.count
        else None,
        "lost": {event: count for event, count in now.lost.items() if count},
    }


def _kernel(interval: Interval, name: str, now: Kernel, before: Kernel) -> Json:
    grid, block = added(now.grid, before.grid), added(now.block, before.block)
    return {
        "name": name,
        "launches": now.launches,
        "launches_per_second": interval.rate(now.launches, before.launches),
        "in_graphs": now.in_graphs,
        "in_graphs_per_second": interval.rate(now.in_graphs, before.in_graphs),
        "blocks_mean": grid.sum / grid.count if grid.count else None,
        "threads_per_block_mean": block.sum / block.count if block.count else None,
    }


def _of(buckets: Buckets | None) -> Buckets:
    return buckets or Buckets()
