"""How is Prometheus asked for a metric that is declared? By OpenTelemetry's names: an unknown one ends the generation.

What a query selects goes by whose metric it is: a process's, a GPU's, a host's or the agent's. Histograms are asked for twice, as
buckets by `le` and as native ones, for which of the two there are depends on the scrape; the one that is not there gives nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from otel_gpu.exporters.prometheus.names import family
from otel_gpu.service import telemetry
from otel_gpu.signals.metrics import Instrument, MetricSpec

WINDOW = "$__rate_interval"
RESOURCE = {
    "job",
    "instance",
    "host.name",
    "process.pid",
    "process.executable.name",
    "k8s.namespace.name",
    "k8s.pod.name",
    "service.version",
}
"""What can be grouped by of every metric: what resources say."""
PROCESS = ("job", "host.name", "process.pid")
"""What tells processes apart for people."""
_OF_GPUS = ('host_name=~"$host"', 'hw_id=~"$gpu"')
_OF_HOSTS = ('host_name=~"$host"',)
_OF_PROCESSES = (
    'host_name=~"$host"',
    'job=~"$job"',
    'instance=~"$process"',
    'k8s_namespace_name=~"$namespace"',
    'k8s_pod_name=~"$pod"',
)
_HARDWARE = {s.name for s in telemetry.GROUPS["Hardware"]}
_AGENT = {s.name for s in telemetry.GROUPS["The agent itself"]}
_PROCESS_TOO = ("gpu.nvml.process.", "otel_gpu.process.")


def label(attribute: str) -> str:
    """Return what an attribute is called as a label."""
    if attribute not in RESOURCE and attribute not in telemetry.ATTRIBUTES:
        raise ValueError(f"no attribute {attribute} is declared")
    return attribute.replace(".", "_")


def gauge(name: str, by: Sequence[str] = (), *where: str, over: str = "sum") -> str:
    """Return the present values of a gauge or an up-down counter, added up or otherwise put together."""
    return f"{over}{_by(name, by)} ({_selected(name, where)})"


def rate(name: str, by: Sequence[str] = (), *where: str) -> str:
    """Return by how much a counter grows a second."""
    assert _spec(name).instrument is Instrument.COUNTER, name
    return f"sum{_by(name, by)} (rate({_selected(name, where, '_total')}[{WINDOW}]))"


def count_rate(name: str, by: Sequence[str] = (), *where: str) -> str:
    """Return how many values a second a histogram gets."""
    return _part_rate("count", name, by, where)


def sum_rate(name: str, by: Sequence[str] = (), *where: str) -> str:
    """Return by how much the sum of a histogram grows a second."""
    return _part_rate("sum", name, by, where)


def _part_rate(part: str, name: str, by: Sequence[str], where: Sequence[str]) -> str:
    return _both(
        f"sum{_by(name, by)} (rate({_selected(name, where, f'_{part}')}[{WINDOW}]))",
        f"sum{_by(name, by)} (histogram_{part}(rate({_selected(name, where)}[{WINDOW}])))",
    )


def quantile(name: str, by: Sequence[str] = (), *where: str, of: str = "$quantile") -> str:
    """Return a quantile of what a histogram got lately."""
    return _both(
        f"histogram_quantile({of}, sum{_by(name, by, 'le')} (rate({_selected(name, where, '_bucket')}[{WINDOW}])))",
        f"histogram_quantile({of}, sum{_by(name, by)} (rate({_selected(name, where)}[{WINDOW}])))",
    )


def quantile_of_all(name: str, by: Sequence[str] = (), *where: str) -> str:
    """Return a quantile of all that a histogram ever got: of what happens now and then."""
    return _both(
        f"histogram_quantile($quantile, sum{_by(name, by, 'le')} ({_selected(name, where, '_bucket')}))",
        f"histogram_quantile($quantile, sum{_by(name, by)} ({_selected(name, where)}))",
    )


def buckets(name: str, *where: str) -> str:
    """Return a histogram's buckets for a heat map."""
    return _both(
        f"sum by (le) (rate({_selected(name, where, '_bucket')}[{WINDOW}]))",
        f"sum (rate({_selected(name, where)}[{WINDOW}]))",
    )


def mean(name: str, by: Sequence[str] = (), *where: str) -> str:
    """Return the mean of what a histogram got lately."""
    return f"({sum_rate(name, by, *where)}) / ({count_rate(name, by, *where)} > 0)"


def share(part: str, whole: str) -> str:
    """Return a part by the whole, 0 where there is none of it."""
    return f"(({part}) or 0 * ({whole})) / (({whole}) > 0)"


def lately(query: str, name: str, by: Sequence[str] = ()) -> str:
    """Return a gauge that is not told at every interval, as it was on average."""
    return f"avg{_by(name, by)} (avg_over_time({_selected(name, (query,) if query else ())}[{WINDOW}]))"


def _both(classic: str, native: str) -> str:
    return f"{classic} or {native}"


def _by(name: str, by: Sequence[str], *more: str) -> str:
    spec = _spec(name)
    if unknown := [one for one in by if one not in RESOURCE and one not in spec.attributes]:
        raise ValueError(f"{name} has no attribute {unknown}")
    labels = [*more, *map(label, by)]
    return f" by ({', '.join(labels)})" if labels else ""


def _selected(name: str, where: Sequence[str], suffix: str = "") -> str:
    spec = _spec(name)
    return f"{family(spec)}{suffix}{{{', '.join((*_owner(spec), *where))}}}"


def _spec(name: str) -> MetricSpec:
    if name not in telemetry.ALL:
        raise ValueError(f"no metric {name} is declared")
    return telemetry.ALL[name]


def _owner(spec: MetricSpec) -> tuple[str, ...]:
    if spec.name.startswith("rdma.port."):
        return _OF_HOSTS
    if spec.name in _HARDWARE and not spec.name.startswith(_PROCESS_TOO):
        return _OF_GPUS
    if spec.name in _AGENT and not spec.name.startswith(_PROCESS_TOO):
        return _OF_HOSTS
    return (*_OF_PROCESSES, 'hw_id=~"$gpu"') if "hw.id" in spec.attributes else _OF_PROCESSES
