"""What does the Prometheus endpoint of an agent say? Its samples, under the names that they have in OpenTelemetry again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from ...errors import ConfigError, OtelGpuError
from ...exporters.prometheus.names import COLLECTED, family, labels
from ...service.telemetry import ALL, ATTRIBUTES
from ...signals.metrics import Attributes, AttributeValue, Buckets, Instrument, MetricSpec, Resource, Value, attributes
from .figures import Reading, figures
from .sources import Taken

_TIMEOUT_S = 5.0
_MAX_BODY = 64 << 20
_PORTION = 1 << 16
_SPECS: dict[str, MetricSpec] = {family(spec): spec for spec in ALL.values()}
_KEYS = {next(iter(labels(((key, ""),)))): key for key in ATTRIBUTES}
_OF_RESOURCES = ("process.pid", "container.id", "k8s.pod.name", "host.name", "hw.id", "hw.model", "hw.name")
_RESOURCE_KEYS = {next(iter(labels(((key, ""),)))): key for key in _OF_RESOURCES}


class ScrapedSource:
    """An agent that runs already, asked where Prometheus would ask it."""

    def __init__(self, url: str) -> None:
        """Take the address; ConfigError where it is none."""
        try:
            import prometheus_client  # noqa: F401 - said here, and not in the middle of a table
        except ModuleNotFoundError as e:
            raise ConfigError(f"the Python package {e.name} is missing; pip install 'otel-gpu[prometheus]'") from e
        self._url = _url(url)
        self._session = requests.Session()
        self._latest: Taken | None = None
        self._collected: str | None = None

    def __enter__(self) -> ScrapedSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def take(self) -> Taken:
        """Ask; OtelGpuError where there is no answer, or none of an agent's."""
        try:
            text, collected = self._ask()
            found = list(readings(text))
        except (OSError, ValueError, requests.RequestException) as e:
            raise OtelGpuError(f"--from {self._url}: {_why(e)}; {_WHAT_TO_DO}") from e
        if self._latest is not None and collected is not None and collected == self._collected:
            return self._latest
        at = int(collected) / 1e9 if collected is not None and collected.isdecimal() else time.monotonic()
        self._latest, self._collected = Taken(figures(found), at), collected
        return self._latest

    def is_over(self) -> bool:
        return False

    def _ask(self) -> tuple[str, str | None]:
        deadline = time.monotonic() + _TIMEOUT_S
        with self._session.get(
            self._url, timeout=_TIMEOUT_S, stream=True, allow_redirects=False, headers={"Accept": "text/plain"}
        ) as answer:
            if answer.status_code != 200:
                raise ValueError(f"it answers with status {answer.status_code}")
            body = bytearray()
            for portion in answer.iter_content(_PORTION):
                body += portion
                if len(body) > _MAX_BODY:
                    raise ValueError(f"it answers with more than {_MAX_BODY >> 20} MiB")
                if time.monotonic() > deadline:
                    raise ValueError(f"it has not answered in {_TIMEOUT_S:g} s")
            return body.decode("utf-8", "replace"), answer.headers.get(COLLECTED)


_WHAT_TO_DO = "give the address of an agent that has an exporter `prometheus`, such as http://localhost:9464/metrics"


def _url(text: str) -> str:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"--from {text}: no address; {_WHAT_TO_DO}")
    return url if parts.path.strip("/") else f"{url.rstrip('/')}/metrics"


def _why(error: Exception) -> str:
    if isinstance(error, requests.ConnectionError):
        return "nobody answers there"
    if isinstance(error, requests.Timeout):
        return f"it has not answered in {_TIMEOUT_S:g} s"
    return str(error)


def readings(text: str) -> Iterator[Reading]:
    """Yield the series of a text of Prometheus's that are an agent's; ValueError where it is none."""
    from prometheus_client.parser import text_string_to_metric_families

    families = list(text_string_to_metric_families(text))
    resources = _resources(families)
    for one in families:
        spec = _SPECS.get(one.name)
        if spec is None:
            continue
        if spec.instrument is Instrument.HISTOGRAM:
            yield from _histograms(spec, one.samples, resources)
            continue
        # Of two pipelines both may carry a series.
        for key, value in {_key(sample.labels): sample.value for sample in one.samples}.items():
            yield _reading(spec, key, value if spec.floating else int(value), resources)


_Key = tuple[tuple[str, str], ...]


def _key(of_sample: Mapping[str, str]) -> _Key:
    return tuple(sorted((k, v) for k, v in of_sample.items() if k != "le"))


def _histograms(spec: MetricSpec, samples: Iterable[Any], resources: Mapping[str, Resource]) -> Iterator[Reading]:
    bounds: dict[_Key, dict[float, float]] = {}
    sums: dict[_Key, float] = {}
    for sample in samples:
        key = _key(sample.labels)
        if sample.name.endswith("_bucket"):
            bounds.setdefault(key, {})[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    for key, counts in bounds.items():
        value = _buckets(counts, sums.get(key, 0.0))
        if not spec.floating:
            value.sum = int(value.sum)
        yield _reading(spec, key, value, resources)


def _buckets(cumulative: Mapping[float, float], total: float) -> Buckets:
    """Return the histogram whose values up to each bound are so many; bounds are powers of two."""
    counts: dict[int, int] = {}
    before, last = 0, 0
    for bound in sorted(cumulative):
        added, before = int(cumulative[bound]) - before, int(cumulative[bound])
        if math.isfinite(bound) and bound > 0:
            last = math.ceil(math.log2(bound)) - 1
            index = last
        else:
            index = last + 1
        if added > 0:
            counts[index] = counts.get(index, 0) + added
    return Buckets(counts, total)


def _reading(spec: MetricSpec, key: _Key, value: Value, resources: Mapping[str, Resource]) -> Reading:
    found: dict[str, AttributeValue] = {_KEYS.get(name, name): text for name, text in key}
    job, instance = str(found.pop("job", "")), str(found.pop("instance", ""))
    resource = resources.get(f"{job}\0{instance}") or Resource(_target(job, instance))
    return Reading(resource, spec.name, found, value)


def _target(job: str, instance: str) -> Attributes:
    return attributes({"service.name": job.rpartition("/")[2] or job, "service.instance.id": instance or None})


def _resources(families: Iterable[Any]) -> dict[str, Resource]:
    """Return whose each `job` and `instance` is."""
    found = {}
    for one in families:
        if one.name not in ("target", "target_info"):
            continue
        for sample in one.samples:
            job, instance = sample.labels.get("job", ""), sample.labels.get("instance", "")
            said = {_RESOURCE_KEYS[name]: text for name, text in sample.labels.items() if name in _RESOURCE_KEYS}
            pid = said.pop("process.pid", "")
            about: dict[str, AttributeValue | None] = {**dict(_target(job, instance)), **said}
            about["process.pid"] = int(pid) if pid.isdecimal() else None
            found[f"{job}\0{instance}"] = Resource(attributes(about))
    return found
