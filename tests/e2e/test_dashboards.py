"""Do Grafana's dashboards and the rules for Prometheus find something, whichever histograms the scrape keeps?

One agent with every signal on sends to a real Collector, which a real Prometheus scrapes: 2.42, to which histograms come as
buckets, and 3.15, which keeps native ones. Every query of every dashboard has to return a value there.
"""

from __future__ import annotations

import http.server
import json
import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import ground
from tests.e2e.collector import RunningCollector, free_ports
from tests.e2e.everything import Everything, everything
from tests.e2e.processes import DEADLINE_S
from tests.e2e.scraping import Prometheus, names_in
from tests.e2e.test_hip import built  # noqa: F401

_ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((_ROOT / "deploy" / "grafana").glob("*.json"))
RULES = _ROOT / "collector-config" / "rules.yaml"
pytestmark = pytest.mark.timeout(600)
BACKENDS = ("classic", "native")
_VARIABLES = {"$__rate_interval": "1m", "$quantile": "0.95"}
_LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")
_QUERY_RESULT = re.compile(r"query_result\((.*)\)")
"""What Grafana asks for the values of a variable."""

_COLLECTOR = """
receivers:
  otlp/classic: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{classic_in}"}}}}}}
  otlp/native: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{native_in}"}}}}}}
exporters:
  prometheus/classic: &exporter
    endpoint: "127.0.0.1:{classic}"
    enable_open_metrics: true
    resource_to_telemetry_conversion: {{enabled: true}}
  prometheus/native: {{<<: *exporter, endpoint: "127.0.0.1:{native}", enable_open_metrics: false}}
  debug:
extensions: {{health_check: {{endpoint: "127.0.0.1:{health}"}}}}
service:
  extensions: [health_check]
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics/classic: {{receivers: [otlp/classic], exporters: [prometheus/classic]}}
    metrics/native: {{receivers: [otlp/native], exporters: [prometheus/native]}}
    traces: {{receivers: [otlp/classic], exporters: [debug]}}
    profiles: {{receivers: [otlp/classic], exporters: [debug]}}
"""

_DCGM = """
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{labels} 0.25
# TYPE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{labels} 0.1
# TYPE DCGM_FI_PROF_DRAM_ACTIVE gauge
DCGM_FI_PROF_DRAM_ACTIVE{labels} 0.4
"""
"""What dcgm-exporter writes of a GPU: there is none here that it could ask."""
_DCGM_LABELS = '{gpu="0",UUID="GPU-5e1fca6d-0b6c-4a11-9d20-483230306d00",device="nvidia0",Hostname="vm"}'


class Collecting(RunningCollector):
    """A Collector that is scraped: buckets on one port, native histograms on another."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        names = ("classic_in", "native_in", "classic", "native", "health")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        config = directory / "otelcol.yaml"
        config.write_text(_COLLECTOR.format(**self.ports))
        super().__init__(directory, [config], self.ports["health"])

    def exporter(self, name: str, histograms: str) -> dict[str, object]:
        """Return how an agent sends to one of its pipelines."""
        return {"endpoint": f"http://127.0.0.1:{self.ports[f'{name}_in']}", "histograms": histograms}


class _Dcgm(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(_DCGM.replace("{labels}", _DCGM_LABELS).encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _dcgm() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Dcgm)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Stack:
    """Programs, the agent, and who scrapes what it says."""

    everything: Everything
    prometheus: dict[str, Prometheus]

    def missing(self, backend: str, queries: dict[str, str]) -> dict[str, str]:
        """Return the queries that have no value, after as long as it is sensible to wait for one."""
        prometheus, deadline = self.prometheus[backend], time.monotonic() + DEADLINE_S
        while queries := {where: one for where, one in queries.items() if not _has_value(prometheus, one)}:
            if time.monotonic() > deadline:
                break
            self.everything.go_on()
            time.sleep(0.5)
        return queries


def _has_value(prometheus: Prometheus, query: str) -> bool:
    return any(math.isfinite(one.value) for one in prometheus.query(query))


@pytest.fixture(scope="module")
def stack(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:  # noqa: F811
    directory = tmp_path_factory.mktemp("dashboards")
    binaries = {"classic": ground.prometheus()}
    if (native := ground.prometheus3_or_none()) is not None:
        binaries["native"] = native
    with ExitStack() as running:
        collector = running.enter_context(Collecting(directory / "collector"))
        dcgm = running.enter_context(_dcgm())
        option = "--enable-feature=exemplar-storage"
        scrape: dict[str, dict[str, object]] = {"classic": {}, "native": {"scrape_native_histograms": True}}
        prometheus = {
            name: running.enter_context(
                Prometheus(
                    binary,
                    directory / name,
                    [f"127.0.0.1:{collector.ports[name]}", dcgm],
                    option,
                    rules=[RULES],
                    scrape=scrape[name],
                )
            )
            for name, binary in binaries.items()
        }
        exporters = {
            "otlp/classic": collector.exporter("classic", "explicit"),
            "otlp/native": collector.exporter("native", "exponential"),
        }
        yield Stack(running.enter_context(everything(directory, built, exporters)), prometheus)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, stack: Stack) -> str:
    if request.param not in stack.prometheus:
        ground.prometheus3()  # skips, and says why
    return request.param


def _panels(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in of.get("panels", ()):
        yield panel
        yield from _panels(panel)


def _filled(text: str) -> str:
    for name, value in _VARIABLES.items():
        text = text.replace(name, value)
    return re.sub(r"\$[a-z]+", ".*", text)


def _of_panels(board: dict[str, Any]) -> dict[str, str]:
    return {
        f"{board['title']}: {panel['title']} {target['refId']}": _filled(target["expr"])
        for panel in _panels(board)
        for target in panel.get("targets", ())
    }


def _of_variables(board: dict[str, Any]) -> dict[str, str]:
    found = {}
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        asked = variable["query"]["query"]
        if values := _LABEL_VALUES.fullmatch(asked):
            found[variable["name"]] = _with_label(_filled(values[1]), values[2])
        else:
            result = _QUERY_RESULT.fullmatch(asked)
            assert result is not None, asked
            found[variable["name"]] = _filled(result[1])
    return found


def _with_label(selector: str, label: str) -> str:
    """Return what selects series that have a label."""
    return f'{selector.removesuffix("}")}, {label}!=""}}' if "{" in selector else f'{selector}{{{label}!=""}}'


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_of_a_dashboard_has_a_value(stack: Stack, backend: str, file: Path) -> None:
    board = json.loads(file.read_text())
    queries = _of_panels(board)
    assert queries

    assert stack.missing(backend, queries) == {}


def test_every_variable_has_values(stack: Stack, backend: str) -> None:
    boards = [json.loads(file.read_text()) for file in DASHBOARDS]
    queries = {f"{board['title']}: {name}": one for board in boards for name, one in _of_variables(board).items()}
    assert len(queries) == 6 * len(boards)

    assert stack.missing(backend, queries) == {}


def test_every_rule_is_evaluated_and_what_it_asks_for_is_there(stack: Stack, backend: str) -> None:
    prometheus = stack.prometheus[backend]
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    recorded = {rule["name"]: rule["name"] for rule in rules if rule["type"] == "recording"}
    asked = set().union(*(names_in(rule["query"]) for rule in rules)) - recorded.keys()
    # Of a histogram there is either: the rules ask for both.
    of_histograms = {name for name in asked if re.sub("_(sum|count)$", "", name) in asked - {name}}
    either = {name: re.sub("_(sum|count)$", "", name) for name in of_histograms}
    plain = asked - of_histograms - set(either.values())

    assert len(recorded) >= 10
    assert stack.missing(backend, recorded | {name: name for name in plain}) == {}
    assert stack.missing(backend, {n: f"{n} or histogram_count({base})" for n, base in either.items()}) == {}
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []


def test_a_value_leads_to_its_trace(stack: Stack) -> None:
    prometheus, exemplars, deadline = stack.prometheus["classic"], [], time.monotonic() + DEADLINE_S
    while not exemplars and time.monotonic() < deadline:
        stack.everything.go_on()
        name, now = "http_server_request_duration_seconds_bucket", time.time()
        found = prometheus.ask("query_exemplars", query=name, start=str(now - 600), end=str(now))
        exemplars = [one for series in found for one in series["exemplars"]]

    assert {len(one["labels"]["trace_id"]) for one in exemplars} == {32}
