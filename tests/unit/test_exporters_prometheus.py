"""What is scraped says what the series say, whatever stands in them."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import exposition, openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from otel_gpu.config.model import Config
from otel_gpu.errors import ConfigError, OtelGpuError
from otel_gpu.exporters.prometheus.exporter import PrometheusExporter
from otel_gpu.exporters.prometheus.families import Families
from otel_gpu.exporters.prometheus.names import family
from otel_gpu.exporters.prometheus.settings import PrometheusSettings
from otel_gpu.runtime.privileges import Capability
from otel_gpu.service.rights import of_run
from otel_gpu.signals.exemplars import Exemplar
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes

CALLS = MetricSpec("gpu.cuda.kernel.launch.calls", "{call}", Instrument.COUNTER, "Launches \\ of\nkernels.")
WAITS = MetricSpec("gpu.cuda.synchronize.duration", "s", Instrument.HISTOGRAM, "Waits.", floating=True)
POWER = MetricSpec("hw.power", "W", Instrument.GAUGE, "Power.", floating=True)
TRAIN = Resource(
    attributes({"service.name": "train", "service.namespace": "ml", "service.instance.id": "1-2", "process.pid": 7})
)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def exporter() -> Iterator[PrometheusExporter]:
    made = PrometheusExporter(PrometheusSettings("localhost:0"))
    yield made
    made.shutdown(5)


def store_of(*measurements: Measurement) -> SeriesStore:
    store = SeriesStore()
    store.fold(measurements, 1)
    return store


def scrape(exporter: PrometheusExporter, accept: str = "text/plain", path: str = "/metrics") -> tuple[str, str]:
    host, port = exporter.address
    asked = urllib.request.Request(f"http://{host}:{port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(text: str, *, is_openmetrics: bool = False) -> Samples:
    parse = parse_openmetrics if is_openmetrics else parse_text
    found: Samples = {}
    for of_name in parse(text):
        for one in of_name.samples:
            key = (one.name, frozenset(one.labels.items()))
            assert key not in found
            found[key] = one.value
    return found


def sample(found: Samples, name: str, **labels: str) -> float:
    [value] = [v for (n, have), v in found.items() if n == name and labels.items() <= dict(have).items()]
    return value


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ],
)
def test_every_series_is_scraped_with_job_and_instance(
    exporter: PrometheusExporter, accept: str, content_type: str
) -> None:
    store = store_of(
        Measurement(TRAIN, CALLS, attributes({"cuda.kernel.name": 'a"b\\c\n<ä>'}), 2**53),
        Measurement(TRAIN, WAITS, (), Buckets({-11: 3, 30: 1}, 2.5, 2)),
        Measurement(TRAIN, POWER, attributes({"hw.id": "GPU-1"}), 250.25),
    )
    exporter.export_metrics(store, 2)

    said, text = scrape(exporter, accept)

    assert said == content_type
    found = samples(text, is_openmetrics="openmetrics" in said)
    of = {"job": "ml/train", "instance": "1-2"}
    assert sample(found, "gpu_cuda_kernel_launch_calls_total", cuda_kernel_name='a"b\\c\n<ä>', **of) == 2**53
    assert sample(found, "hw_power_watts", hw_id="GPU-1", **of) == 250.25
    assert sample(found, "target_info", process_pid="7", **of) == 1
    name = "gpu_cuda_synchronize_duration_seconds"
    assert [sample(found, f"{name}_{one}", **of) for one in ("count", "sum")] == [6, 2.5]
    edges = [sample(found, f"{name}_bucket", le=le, **of) for le in ("0.00048828125", "0.0009765625", "512.0", "+Inf")]
    assert edges == [2, 5, 5, 6]
    assert exporter.stats().sent_points == len(store) == 3


def test_openmetrics_leads_from_a_bucket_to_its_trace(exporter: PrometheusExporter) -> None:
    waits = Buckets({-11: 1}, 0.0006)
    waits.note(-11, Exemplar(0.0006, 2_000_000_000, bytes([1] * 16), bytes([2] * 8)))
    store = store_of(Measurement(TRAIN, WAITS, (), waits))
    exporter.export_metrics(store, 2)

    [found] = [
        (one.labels["le"], one.exemplar)
        for of_name in parse_openmetrics(scrape(exporter, "application/openmetrics-text")[1])
        for one in of_name.samples
        if one.exemplar
    ]

    assert found[0] == "0.0009765625"
    assert (found[1].labels, found[1].value) == ({"trace_id": "01" * 16, "span_id": "02" * 8}, 0.0006)


def test_pipelines_are_scraped_together(exporter: PrometheusExporter) -> None:
    first, second = (store_of(Measurement(TRAIN, CALLS, attributes(k=k), 1)) for k in "ab")
    for store in (first, second, first):
        exporter.export_metrics(store, 2)

    found = samples(scrape(exporter)[1])

    assert [sample(found, "gpu_cuda_kernel_launch_calls_total", k=k) for k in "ab"] == [1, 1]
    assert sample(found, "target_info") == 1


def test_a_name_that_is_taken_costs_its_metric_alone(
    exporter: PrometheusExporter, caplog: pytest.LogCaptureFixture
) -> None:
    taken = MetricSpec("hw_power", "W", Instrument.UPDOWNCOUNTER, "")
    other = MetricSpec("hw.power.watts", "W", Instrument.HISTOGRAM, "")

    stores = (
        store_of(Measurement(TRAIN, POWER, (), 1), Measurement(TRAIN, other, (), Buckets({1: 1}, 3))),
        store_of(Measurement(TRAIN, taken, attributes(a=1), 1)),
    )
    for store in stores:
        exporter.export_metrics(store, 2)

    assert "left out, for another metric has that name in Prometheus: hw.power.watts" in caplog.text
    assert sample(samples(scrape(exporter)[1]), "hw_power_watts", a="1") == 1


def test_nothing_else_is_told(exporter: PrometheusExporter) -> None:
    assert samples(scrape(exporter)[1]) == {}
    with pytest.raises(HTTPError, match="404"):
        scrape(exporter, path="/")


@pytest.mark.parametrize(
    ("name", "unit", "instrument", "expected"),
    [
        ("gpu.cuda.memory.copies", "By", Instrument.HISTOGRAM, "gpu_cuda_memory_copies_bytes"),
        ("gpu.cuda.memory.free.bytes", "By", Instrument.COUNTER, "gpu_cuda_memory_free_bytes"),
        ("hw.gpu.utilization", "1", Instrument.GAUGE, "hw_gpu_utilization_ratio"),
        ("gpu.cuda.kernel.grid.size", "1", Instrument.HISTOGRAM, "gpu_cuda_kernel_grid_size"),
        ("gpu.nvml.io.rate", "By/s", Instrument.GAUGE, "gpu_nvml_io_rate_bytes_per_second"),
        ("requests.total", "{request}", Instrument.COUNTER, "requests"),
        ("1up", "1/s", Instrument.GAUGE, "_1up_per_second"),
        ("..", "", Instrument.GAUGE, "_"),
    ],
)
def test_names_are_those_of_the_specification(name: str, unit: str, instrument: Instrument, expected: str) -> None:
    assert family(MetricSpec(name, unit, instrument, "")) == expected


@given(
    keys=st.dictionaries(st.text(max_size=6), st.text(max_size=6) | st.booleans() | st.integers(), max_size=4),
    value=st.floats() | st.integers(),
)
def test_whatever_attributes_say_both_formats_can_be_read(keys: dict[str, str | bool | int], value: float) -> None:
    families = Families()
    resource = Resource(attributes({**keys, "service.name": "\ud800\n"}))
    families.add(store_of(Measurement(resource, POWER, attributes(keys), value)))

    for text, is_openmetrics in (
        (exposition.generate_latest(families), False),
        (openmetrics.exposition.generate_latest(families), True),
    ):
        found = samples(text.decode(), is_openmetrics=is_openmetrics)
        assert {name for name, _ in found} == {"hw_power_watts", "target_info"}


def test_variables_say_where() -> None:
    environ = {
        "OTEL_METRICS_EXPORTER": "prometheus",
        "OTEL_EXPORTER_PROMETHEUS_HOST": "::1",
        "OTEL_EXPORTER_PROMETHEUS_PORT": "9000",
    }

    assert Config.load(environ=environ).exporter("prometheus", "metrics") == PrometheusSettings("[::1]:9000")
    wrong = Config.load(environ={**environ, "OTEL_EXPORTER_PROMETHEUS_PORT": "70000"})
    assert wrong.exporter("prometheus", "metrics") == PrometheusSettings("[::1]:9464")
    assert wrong.notices == ("OTEL_EXPORTER_PROMETHEUS_PORT is ignored: '70000' is no number from 1 to 65535",)


@pytest.mark.parametrize("host", ["localhost:9000", "a b", "http://h", "[::1", "::1::"])
def test_a_host_that_is_none_is_said_and_ignored(host: str) -> None:
    config = Config.load(environ={"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST": host})

    assert config.exporter("prometheus", "metrics") == PrometheusSettings()
    assert config.notices == (
        f"OTEL_EXPORTER_PROMETHEUS_HOST is ignored: {host!r} is no host; write a name or an address, such as localhost or ::1",
    )


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [("[::1]", "[::1]:9464"), ("0.0.0.0", "0.0.0.0:9464"), ("gpu_node-1.example", "gpu_node-1.example:9464")],
)
def test_a_host_that_is_one_is_taken(host: str, endpoint: str) -> None:
    config = Config.load(environ={"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST": host})

    assert config.exporter("prometheus", "metrics") == PrometheusSettings(endpoint)
    assert config.notices == ()


@pytest.mark.parametrize("exporters", ["console: {}", "prometheus: {endpoint: 'localhost:9000'}"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_PROMETHEUS_PORT", "abc"),
        ("OTEL_EXPORTER_PROMETHEUS_HOST", "a b"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "x"),
    ],
)
def test_a_variable_that_no_exporter_asks_for_is_said_too(
    exporters: str, name: str, value: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"exporters: {{{exporters}}}")

    [notice] = Config.load(path, environ={name: value}).notices

    assert notice.startswith(f"{name} is ignored: {value!r} is no ")


def test_an_endpoint_that_no_exporter_asks_for_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("exporters: {console: {}}")

    assert Config.load(path, environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:x"}).notices == ()


def test_compression_of_http_is_no_mistake_where_the_exporter_is_of_http(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("exporters: {otlp_http: {endpoint: 'http://h'}}")

    assert Config.load(path, environ={"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}).notices == ()


def test_what_cannot_be_is_said(exporter: PrometheusExporter) -> None:
    with pytest.raises(ConfigError, match="path: 'x' is no path"):
        PrometheusSettings(path="x")
    with pytest.raises(OtelGpuError, match=r"Prometheus cannot be answered at .* set exporters\.prometheus\.endpoint"):
        PrometheusExporter(PrometheusSettings(f"localhost:{exporter.address[1]}"))


def test_a_low_port_needs_a_right_of_its_own() -> None:
    config = Config(exporters={"prometheus": PrometheusSettings("localhost:80")})

    assert Capability.CAP_NET_BIND_SERVICE in of_run(config).kept
    assert Capability.CAP_NET_BIND_SERVICE not in of_run(Config(exporters={"prometheus": PrometheusSettings()})).kept


def test_what_a_resource_says_does_not_stand_in_for_what_was_measured() -> None:
    liar = Resource(
        attributes({"service.name": "train", "gpu.cuda.memory.copy.kind": "lie", "job": "lie", "team": "a"})
    )
    kinds = [(("gpu.cuda.memory.copy.kind", kind),) for kind in ("h2d", "d2h")]
    families = Families()
    families.add(store_of(*(Measurement(liar, CALLS, kind, 3) for kind in kinds)), with_resources=True)

    found = samples(exposition.generate_latest(families).decode())
    for kind in ("h2d", "d2h"):
        name = "gpu_cuda_kernel_launch_calls_total"
        assert sample(found, name, gpu_cuda_memory_copy_kind=kind, job="train", team="a") == 3


def test_who_asks_twice_in_an_interval_is_told_the_same_and_then_what_is_new(exporter: PrometheusExporter) -> None:
    store = store_of(Measurement(TRAIN, CALLS, (), 3))
    exporter.export_metrics(store, 5)
    for accept in ("text/plain", "application/openmetrics-text"):
        assert scrape(exporter, accept) == scrape(exporter, accept)
    store.fold([Measurement(TRAIN, CALLS, (), 1)], 6)
    exporter.export_metrics(store, 6)
    for accept, is_openmetrics in (("text/plain", False), ("application/openmetrics-text", True)):
        found = samples(scrape(exporter, accept)[1], is_openmetrics=is_openmetrics)
        assert sample(found, "gpu_cuda_kernel_launch_calls_total") == 4


def test_what_a_resource_says_stands_on_each_sample_where_that_is_wanted() -> None:
    families = Families()
    families.add(store_of(Measurement(TRAIN, CALLS, (), 3), Measurement(TRAIN, POWER, (), 2.5)), with_resources=True)

    found = samples(exposition.generate_latest(families).decode())

    of_all = frozenset(
        {"job": "ml/train", "instance": "1-2", "process_pid": "7", "service_name": "train", "service_namespace": "ml",
         "service_instance_id": "1-2"}.items()
    )  # fmt: skip
    assert found["gpu_cuda_kernel_launch_calls_total", of_all] == 3
    assert found["hw_power_watts", of_all] == 2.5


def _claiming(pid: int | None, **more: str) -> Resource:
    said = {"service.name": "train", "service.instance.id": "one", **more}
    return Resource(attributes({**said, "process.pid": pid} if pid else said))


def _instances(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str) -> dict[str, float]:
    return {dict(of)["instance"]: value for (one, of), value in found.items() if one == name}


def test_processes_that_claim_one_instance_are_apart(exporter: PrometheusExporter) -> None:
    first, second = _claiming(7), _claiming(8)
    store = store_of(Measurement(first, CALLS, (), 3), Measurement(second, CALLS, (), 4))
    another = store_of(Measurement(second, POWER, (), 5))
    exporter.export_metrics(store, 5)
    exporter.export_metrics(another, 5)

    for accept, is_openmetrics in (("text/plain", False), ("application/openmetrics-text", True)):
        found = samples(scrape(exporter, accept)[1], is_openmetrics=is_openmetrics)
        assert _instances(found, "gpu_cuda_kernel_launch_calls_total") == {"one": 3, "one/8": 4}
        # In every pipeline it is the same one.
        assert _instances(found, "hw_power_watts") == {"one/8": 5}
        assert {dict(of)["process_pid"] for name, of in found if name == "target_info"} == {"7", "8"}


def test_a_process_keeps_its_instance_when_the_one_that_had_it_first_ends(exporter: PrometheusExporter) -> None:
    first, second, third = _claiming(7), _claiming(8), _claiming(9)
    store = store_of(Measurement(first, CALLS, (), 3), Measurement(second, CALLS, (), 4))
    exporter.export_metrics(store, 5)
    store.end(first)
    store.sweep()
    exporter.export_metrics(store, 6)
    alone = _instances(samples(scrape(exporter)[1]), "gpu_cuda_kernel_launch_calls_total")
    store.fold([Measurement(third, CALLS, (), 5)], 7)
    exporter.export_metrics(store, 7)

    assert alone == {"one/8": 4}
    found = _instances(samples(scrape(exporter)[1]), "gpu_cuda_kernel_launch_calls_total")
    assert found == {"one/8": 4, "one": 5}


def test_nobody_gets_an_instance_that_another_one_claims() -> None:
    several = [
        _claiming(8, **{"service.instance.id": "one/7"}),
        _claiming(None),
        _claiming(7),
        _claiming(None, team="a"),
    ]
    families = Families()
    families.add(store_of(*(Measurement(one, CALLS, (), n) for n, one in enumerate(several))))

    found = _instances(samples(exposition.generate_latest(families).decode()), "gpu_cuda_kernel_launch_calls_total")
    assert found == {"one/7": 0, "one": 1, "one/7#2": 2, "one/#2": 3}


def test_a_process_of_which_more_is_learnt_has_its_series_once() -> None:
    families = Families()
    before, after = _claiming(7), _claiming(7, **{"k8s.pod.name": "web"})
    families.add(store_of(Measurement(before, CALLS, (), 3), Measurement(after, CALLS, (), 4)))

    found = samples(exposition.generate_latest(families).decode())
    assert _instances(found, "gpu_cuda_kernel_launch_calls_total") == {"one": 4}
    assert [dict(of)["k8s_pod_name"] for name, of in found if name == "target_info"] == ["web"]
