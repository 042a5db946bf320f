"""How is the agent itself doing? Losses, map fill, probes, exporters, its own CPU and memory."""

from __future__ import annotations

import math
import os
import resource as rusage
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ... import telemetry
from ...abi import Loss
from ...discovery.host import host
from ...exporters.statistics import ExporterStats
from ...signals.metrics import AttributeValue, Buckets, Measurement, MetricSpec, Resource, Value, attributes
from ...supervision import Health

if TYPE_CHECKING:
    from ...discovery.resource import Identities
    from ..cuda.receiver import CudaReceiver
    from ..profiles.receiver import ProfileReceiver

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAX_DURATIONS = 65_536
"""Between two collections; as many programs may have started as there are pids."""
_LOSS_EVENTS = {loss: loss.name.lower() for loss in Loss}


class SelfReceiver:
    """Measures the agent. Sums are kept here, so that what flows is what was added."""

    def __init__(
        self,
        cuda: CudaReceiver | None,
        exporters: Callable[[], Sequence[tuple[str, ExporterStats]]],
        version: str,
        profile: ProfileReceiver | None = None,
        identities: Identities | None = None,
        configured: Mapping[str, str] = {},
        health: Callable[[], Iterable[Health]] = tuple,
    ) -> None:
        """`configured` are the attributes of the agent's own OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME.

        `health` tells of every part of the agent how it is.
        """
        self._cuda = cuda
        self._profile = profile
        self._exporters = exporters
        self._identities = identities
        self._health = health
        identity: dict[str, AttributeValue | None] = {
            **host(),
            "service.name": "otel-gpu",
            "service.version": version,
            **configured,
            "process.pid": os.getpid(),
            "telemetry.distro.name": "otel-gpu",
            "telemetry.distro.version": version,
        }
        self._resource = Resource(attributes(identity))
        self._before: dict[tuple[str, object], float] = {}
        self._durations: deque[tuple[MetricSpec, dict[str, AttributeValue], float]] = deque(maxlen=_MAX_DURATIONS)

    def duration(self, metric: MetricSpec, seconds: float, **attrs: AttributeValue) -> None:
        """Note how long something took; from any thread."""
        self._durations.append((metric, dict(attrs), seconds))

    def collect(self) -> list[Measurement]:
        """Return what was measured since the last call."""
        found: list[Measurement] = []
        usage = rusage.getrusage(rusage.RUSAGE_SELF)
        self._sum(found, telemetry.PROCESS_CPU_TIME, usage.ru_utime, {"cpu.mode": "user"})
        self._sum(found, telemetry.PROCESS_CPU_TIME, usage.ru_stime, {"cpu.mode": "system"})
        self._sum(found, telemetry.PROCESS_MEMORY_USAGE, resident_bytes(), {})
        if self._cuda is not None:
            for loss, count in self._cuda.losses().items():
                self._sum(found, telemetry.EVENTS_LOST, count, {"event": _LOSS_EVENTS[loss]})
            for event, count in self._cuda.gaps().items():
                self._sum(found, telemetry.EVENTS_LOST, count, {"event": event})
            for name, (entries, capacity) in self._cuda.fill().items():
                self._put(found, telemetry.MAP_ENTRIES, entries, {"bpf.map.name": name})
                self._put(found, telemetry.MAP_CAPACITY, capacity, {"bpf.map.name": name})
            for name, kernels in self._cuda.unnamed().items():
                self._put(found, telemetry.KERNELS_UNNAMED, kernels, {"state": name})
            attached, failed = self._cuda.probes()
            self._put(found, telemetry.PROBES, attached, {"state": "attached"})
            for reason, count in failed.items():
                self._put(found, telemetry.PROBES, count, {"state": "failed", "error.type": reason})
        if self._profile is not None:
            for loss, count in self._profile.losses().items():
                self._sum(found, telemetry.EVENTS_LOST, count, {"event": f"profile_{_LOSS_EVENTS[loss]}"})
            for cut, count in self._profile.stacks().items():
                state = {"state": "complete"} if cut is None else {"state": "truncated", "reason": cut}
                self._sum(found, telemetry.STACKS, count, {**state})
        if self._identities is not None:
            for cut, count in self._identities.cuts().items():
                self._sum(found, telemetry.RESOURCE_ATTRIBUTES_CUT, count, {"reason": cut.value})
            for reason, count in self._identities.unread().items():
                self._sum(found, telemetry.PROCESSES_UNREAD, count, {"reason": reason.value})
        for name, stats in self._exporters():
            for outcome, points in (
                ("sent", stats.sent_points),
                ("failed", stats.failed_points),
                ("rejected", stats.rejected_points),
                ("dropped", stats.dropped_points),
            ):
                self._sum(found, telemetry.EXPORT_POINTS, points, {"otel.component.name": name, "outcome": outcome})
        self._of_components(found)
        for _ in range(len(self._durations)):
            metric, attrs, seconds = self._durations.popleft()
            self._put(found, metric, _one_duration(seconds), attrs)
        return found

    def close(self) -> None:
        """Nothing is held."""

    def _of_components(self, found: list[Measurement]) -> None:
        failures: Counter[str] = Counter()
        are_good: dict[str, bool] = {}
        for health in self._health():
            failures[health.component] += health.failures
            are_good[health.component] = health.is_good and are_good.get(health.component, True)
        for component, is_good in are_good.items():
            self._put(found, telemetry.COMPONENT_HEALTH, int(is_good), {"component": component})
            self._sum(found, telemetry.COMPONENT_FAILURES, failures[component], {"component": component})

    def _put(
        self, found: list[Measurement], metric: MetricSpec, value: Value, attrs: dict[str, AttributeValue]
    ) -> None:
        found.append(Measurement(self._resource, metric, attributes(attrs), value))

    def _sum(
        self, found: list[Measurement], metric: MetricSpec, total: float, attrs: dict[str, AttributeValue]
    ) -> None:
        key = (metric.name, attributes(attrs))
        self._put(found, metric, total - self._before.get(key, 0), attrs)
        self._before[key] = total


def resident_bytes() -> int:
    """Return the memory that the agent holds in RAM."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * _PAGE


def _one_duration(seconds: float) -> Buckets:
    """Return a histogram of one value, in OTLP's scale-0 buckets."""
    if seconds <= 0:
        return Buckets(zero_count=1)
    mantissa, exponent = math.frexp(seconds)
    return Buckets({exponent - (2 if mantissa == 0.5 else 1): 1}, seconds)
