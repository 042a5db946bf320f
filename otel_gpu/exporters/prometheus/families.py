"""How do series become Prometheus's families of samples? Each with the `job` and `instance` of its resource.

As in the Collector's exporter: `job` is `service.name`, after its namespace, `instance` is `service.instance.id`, and all else
that a resource says stands once, on its `target_info`. No two processes have the same of both (`targets.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from prometheus_client.core import Exemplar as SpanExemplar
from prometheus_client.core import Metric

from ...signals.exemplars import Exemplar
from ...signals.metrics import Buckets, Instrument, MetricSpec, ResourceSeries, Series
from ..wire.explicit_bounds import explicit_bounds
from .names import family, labels
from .targets import TARGET, Claim, Targets

_TYPES = {
    Instrument.COUNTER: "counter",
    Instrument.UPDOWNCOUNTER: "gauge",
    Instrument.GAUGE: "gauge",
    Instrument.HISTOGRAM: "histogram",
}


def merged(several: Sequence[Families]) -> Families:
    """Return the samples of several pipelines together: each family stands once, and each resource."""
    if len(several) == 1:
        return several[0]
    together = Families()
    for one in several:
        together.include(one)
    return together


class Families:
    """The samples of every series, as they were at one time."""

    def __init__(self) -> None:
        self.points = 0
        self.skipped: set[str] = set()
        """Metrics of which a name is taken by one of another type."""
        self._by_name: dict[str, Metric] = {}

    def collect(self) -> Iterable[Metric]:
        """Return all families, as prometheus_client wants to be told."""
        return self._by_name.values()

    def add(
        self, store: Iterable[ResourceSeries], targets: Targets | None = None, *, with_resources: bool = False
    ) -> set[Claim]:
        """Add what a store holds now, and return who that is of, as `targets` knows them.

        With `with_resources` what their resources say are labels of all samples.
        """
        known = Targets() if targets is None else targets
        # Of a process of which more was learnt, what was measured before is handed out once more beside it: it has ended.
        owners: dict[Claim, tuple[ResourceSeries, dict[str, str]]] = {}
        for owner in store:
            if owner.series:
                claim, target = known.of(owner.resource)
                owners[claim] = owner, target
        for owner, target in owners.values():
            about = tuple(one for one in owner.resource.attributes if one[0] not in TARGET)
            self._family("target", "What is observed.", "info").add_sample(
                "target_info", {**labels(about), **target}, 1
            )
            of_resource = labels(owner.resource.attributes) if with_resources else {}
            for series in owner.series.values():
                # What a resource says of itself does not stand in for what was measured, nor for who it is.
                self._add(series, {**of_resource, **labels(series.attributes), **target})
        return set(owners)

    def include(self, other: Families) -> None:
        """Add the samples that another one has."""
        for of_other in other.collect():
            metric = self._family(of_other.name, of_other.documentation, of_other.type)
            if metric.type == of_other.type:
                is_target = of_other.type == "info"
                metric.samples += (s for s in of_other.samples if not is_target or s not in metric.samples)
        self.points += other.points

    def _add(self, series: Series, of_series: dict[str, str]) -> None:
        spec = series.metric
        name, kind = family(spec), _TYPES[spec.instrument]
        metric = self._family(name, spec.description, kind)
        if metric.type != kind:
            self.skipped.add(spec.name)
            return
        self.points += 1
        if isinstance(series.value, Buckets):
            _add_histogram(metric, name, spec, of_series, series.value)
        else:
            metric.add_sample(f"{name}_total" if kind == "counter" else name, of_series, series.value)

    def _family(self, name: str, description: str, kind: str) -> Metric:
        metric = self._by_name.get(name)
        if metric is None:
            metric = self._by_name[name] = Metric(name, description, kind)
        return metric


def _add_histogram(metric: Metric, name: str, spec: MetricSpec, of_series: dict[str, str], value: Buckets) -> None:
    bounds = explicit_bounds(spec)
    exemplars = {0 if index is None else bounds.position(index): one for index, one in value.exemplars.items()}
    total = 0
    for position, (bound, count) in enumerate(zip((*bounds.values, math.inf), bounds.counts(value), strict=True)):
        total += count
        edge = "+Inf" if bound == math.inf else repr(bound)
        metric.add_sample(
            f"{name}_bucket", {**of_series, "le": edge}, total, exemplar=_exemplar(exemplars.get(position))
        )
    metric.add_sample(f"{name}_count", of_series, value.count)
    metric.add_sample(f"{name}_sum", of_series, value.sum)


def _exemplar(exemplar: Exemplar | None) -> SpanExemplar | None:
    if exemplar is None:
        return None
    of_span = {"trace_id": exemplar.trace_id.hex(), "span_id": exemplar.span_id.hex()}
    return SpanExemplar(of_span, exemplar.value, exemplar.time_ns / 1e9)
