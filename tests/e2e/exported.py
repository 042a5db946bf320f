"""What did the agent export? The last cumulative value of every series in a file of OTLP/JSON lines.

The agent's own file output and the Collector's file exporter write the same form.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.truth import Histogram

_CUMULATIVE = 2
_NO_RECORDED_VALUE = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """The last point of one series."""

    resource: dict[str, object]
    name: str
    unit: str
    attributes: dict[str, object]
    start_ns: int
    value: float
    """The histogram's sum, where it is one."""
    histogram: Histogram | None


class Metrics:
    """Samples to choose from and to add up."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.samples = list(samples)

    def where(self, condition: Callable[[Sample], bool]) -> Metrics:
        return Metrics(s for s in self.samples if condition(s))

    def of(self, pid: int) -> Metrics:
        """Return the series about one process."""
        return self.where(lambda s: s.resource.get("process.pid") == pid)

    def named(self, name: str) -> Metrics:
        return self.where(lambda s: s.name == name)

    def restarted(self) -> list[str]:
        """Return the names of the series that have started more than once."""
        series = Counter((_frozen(s.resource), s.name, _frozen(s.attributes)) for s in self.samples)
        return [name for (_, name, _), starts in series.items() if starts > 1]

    def total(self, name: str) -> float:
        """Add up every series of a metric; 0 when there is none."""
        return sum(s.value for s in self.samples if s.name == name)

    def by(self, name: str, attribute: str) -> Counter[str]:
        """Add up a metric's series by one attribute."""
        totals: Counter[str] = Counter()
        for sample in self.samples:
            if sample.name == name:
                totals[str(sample.attributes.get(attribute))] += sample.value
        return totals

    def histogram(self, name: str) -> Histogram:
        """Merge every series of a histogram."""
        return sum((s.histogram for s in self.samples if s.name == name and s.histogram), Histogram())

    def histograms_by(self, name: str, attribute: str) -> dict[str, Histogram]:
        merged: dict[str, Histogram] = {}
        for sample in self.samples:
            if sample.name == name and sample.histogram:
                key = str(sample.attributes.get(attribute))
                merged[key] = merged.get(key, Histogram()) + sample.histogram
        return merged


def whole_lines(path: Path) -> list[str]:
    """Return the lines that are written to their end; the last one of a running agent may not be yet."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def read_metrics(path: Path) -> Metrics:
    """Read a metrics.jsonl, or the one in a directory, and keep each series' last point.

    A series that starts anew, as OTLP allows, is another one. Fails when a cumulative series falls.
    """
    path = path / "metrics.jsonl" if path.is_dir() else path
    last: dict[object, Sample] = {}
    for line in whole_lines(path):
        for sample, cumulative in _samples(json.loads(line)):
            start = sample.start_ns if cumulative else 0
            key = (_frozen(sample.resource), sample.name, _frozen(sample.attributes), start)
            before = last.get(key)
            if before and cumulative:
                assert sample.value >= before.value, f"{sample.name} fell: {before} then {sample}"
            last[key] = sample
    return Metrics(last.values())


def _samples(request: dict[str, object]) -> Iterator[tuple[Sample, bool]]:
    for resource_metrics in request["resourceMetrics"]:
        resource = _attributes(resource_metrics.get("resource", {}))
        for scope in resource_metrics["scopeMetrics"]:
            for metric in scope["metrics"]:
                kind = next(k for k in ("sum", "gauge", "exponentialHistogram") if k in metric)
                data = metric[kind]
                falls = kind == "gauge" or (kind == "sum" and not data.get("isMonotonic", False))
                cumulative = not falls and data.get("aggregationTemporality") == _CUMULATIVE
                for point in data["dataPoints"]:
                    if point.get("flags", 0) & _NO_RECORDED_VALUE:
                        continue
                    histogram = _histogram(point) if kind == "exponentialHistogram" else None
                    value = histogram.sum if histogram else _number(point)
                    yield (
                        Sample(
                            resource,
                            metric["name"],
                            metric.get("unit", ""),
                            _attributes(point),
                            int(point.get("startTimeUnixNano", 0)),
                            value,
                            histogram,
                        ),
                        cumulative,
                    )


def _number(point: dict[str, object]) -> float:
    return int(point["asInt"]) if "asInt" in point else float(point.get("asDouble", 0))


def _histogram(point: dict[str, object]) -> Histogram:
    assert int(point.get("scale", 0)) == 0, "the agent exports at scale 0"
    positive = point.get("positive", {})
    offset = int(positive.get("offset", 0))
    buckets = Counter({offset + i: int(n) for i, n in enumerate(positive.get("bucketCounts", ())) if int(n)})
    return Histogram(int(point["count"]), float(point.get("sum", 0)), buckets)


def _attributes(holder: dict[str, object]) -> dict[str, object]:
    return {a["key"]: _value(a["value"]) for a in holder.get("attributes", ())}


def _value(value: dict[str, object]) -> object:
    if "intValue" in value:
        return int(value["intValue"])
    if "arrayValue" in value:
        return tuple(_value(v) for v in value["arrayValue"].get("values", ()))
    return next(iter(value.values()), None)


def _frozen(attributes: dict[str, object]) -> frozenset[tuple[str, object]]:
    return frozenset(attributes.items())
