"""How is the agent itself doing? What its parts measure of themselves, how they are, its own CPU and memory."""

from __future__ import annotations

import os
import resource as rusage
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ...runtime.supervision import Health
from ...signals import self_metrics
from ...signals.metrics import Attributes, Instrument, Measurement, Resource, SelfReading, attributes

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TOTALS = (Instrument.COUNTER, Instrument.UPDOWNCOUNTER)


class SelfReceiver:
    """Measures the agent. Totals are kept here, so that what flows is what was added."""

    def __init__(
        self,
        agent: Resource,
        readings: Callable[[], Iterable[SelfReading]] = tuple,
        health: Callable[[], Iterable[Health]] = tuple,
    ) -> None:
        """`readings` tells what the agent's parts measure of themselves, `health` how they are."""
        self._resource = agent
        self._readings = readings
        self._health = health
        self._before: dict[tuple[str, Attributes], float] = {}

    def collect(self) -> list[Measurement]:
        """Return what was measured since the last call."""
        return [self._measured(reading) for reading in (*_of_process(), *self._readings(), *self._of_components())]

    def close(self) -> None:
        """Nothing is held."""

    def _of_components(self) -> Iterator[SelfReading]:
        failures: Counter[str] = Counter()
        are_good: dict[str, bool] = {}
        for health in self._health():
            failures[health.component] += health.failures
            are_good[health.component] = health.is_good and are_good.get(health.component, True)
        for component, is_good in are_good.items():
            yield SelfReading(self_metrics.COMPONENT_HEALTH, int(is_good), {"otel_gpu.component": component})
            yield SelfReading(self_metrics.COMPONENT_FAILURES, failures[component], {"otel_gpu.component": component})

    def _measured(self, reading: SelfReading) -> Measurement:
        attrs, value = attributes(reading.attributes), reading.value
        if reading.metric.instrument in _TOTALS:
            assert isinstance(value, int | float)
            key = (reading.metric.name, attrs)
            value, self._before[key] = value - self._before.get(key, 0), value
        return Measurement(self._resource, reading.metric, attrs, value)


def resident_bytes() -> int:
    """Return the memory that the agent holds in RAM."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * _PAGE


def _of_process() -> Iterator[SelfReading]:
    usage = rusage.getrusage(rusage.RUSAGE_SELF)
    yield SelfReading(self_metrics.PROCESS_CPU_TIME, usage.ru_utime, {"cpu.mode": "user"})
    yield SelfReading(self_metrics.PROCESS_CPU_TIME, usage.ru_stime, {"cpu.mode": "system"})
    yield SelfReading(self_metrics.PROCESS_MEMORY_USAGE, resident_bytes())
