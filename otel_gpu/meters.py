"""How does a program's own MeterProvider export what the agent counts? By instruments that are read when it collects.

    import os
    from opentelemetry import metrics
    from otel_gpu import Agent, Config, meters
    from otel_gpu.config import Discovery

    with Agent(Config(exporters={}, discovery=Discovery(pids=(os.getpid(),)))) as agent:
        meters.publish(agent, metrics.get_meter_provider())
        ...

What the API allows of that: resource, views and exporters are the provider's; series of another process than this one
carry its `process.pid` as an attribute. Histograms cannot be told by asynchronous instruments, and are left out; an
exporter that is handed to the agent (`Agent(exporters=[…])`) gets them too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .service import telemetry
from .signals.metrics import Buckets, Instrument, MetricSpec, Point
from .version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

    from .service.agent import Agent

_FRESH_S = 0.1
"""The instruments of one collection are read one after another, and are of one snapshot."""


def publish(agent: Agent, provider: MeterProvider) -> None:
    """Make an instrument for each metric that is no histogram. They are read for as long as the agent runs."""
    meter = provider.get_meter("otel_gpu", __version__)
    snapshots = _Snapshots(agent)
    makers: dict[Instrument, Callable[..., Any]] = {
        Instrument.COUNTER: meter.create_observable_counter,
        Instrument.UPDOWNCOUNTER: meter.create_observable_up_down_counter,
        Instrument.GAUGE: meter.create_observable_gauge,
    }
    for metric in (
        *telemetry.ALL.values(),
        *(spec for factory in telemetry.installed().values() for spec in factory.metrics),
        *(spec for factory in telemetry.installed_processors().values() for spec in factory.metrics),
    ):
        if (make := makers.get(metric.instrument)) is not None:
            make(metric.name, [_callback(snapshots, metric)], metric.unit, metric.description)


class _Snapshots:
    """What the agent has counted, by metric, as of a moment ago."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._taken_at = -_FRESH_S
        self._points: dict[str, list[Point]] = {}

    def of(self, metric: str) -> Sequence[Point]:
        with self._lock:
            if time.monotonic() - self._taken_at >= _FRESH_S:
                self._points = {}
                for point in self._agent.snapshot():
                    self._points.setdefault(point.name, []).append(point)
                self._taken_at = time.monotonic()
            return self._points.get(metric, ())


def _callback(snapshots: _Snapshots, metric: MetricSpec) -> Callable[[CallbackOptions], Iterable[Observation]]:
    from opentelemetry.metrics import Observation

    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        for point in snapshots.of(metric.name):
            if not isinstance(point.value, Buckets):
                pid = dict(point.resource.attributes).get("process.pid")
                whose = {} if pid in (None, os.getpid()) else {"process.pid": pid}
                yield Observation(point.value, {**dict(point.attributes), **whose})

    return observe
