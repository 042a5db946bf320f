"""Is each file of collector-config/ taken by the real Collector, and does what an agent sees go through it?"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.e2e import ground
from tests.e2e.collector import GATES, RunningCollector, free_ports
from tests.e2e.processes import DEADLINE_S, Agent
from tests.e2e.test_requests import server

_FILES = Path(__file__).parents[2] / "collector-config"
_CONFIGS = sorted(path for path in _FILES.glob("*.yaml") if path.name not in ("manifest.yaml", "rules.yaml"))
_NOT_TO_BE_HAD = "otlp-json-file"
"""Its receiver is not on the module proxy."""
_SEEN = {"metrics": "gpu.cuda.kernel.launch.calls", "traces": "gpu batch", "profiles": "gpu_launches"}
_GPU = "GPU-5e1fca6d-0b6c-4a11-9d20-483230306d00"
_DCGM = f"""# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{_GPU}",pci_bus_id="00000000:01:00.0",device="nvidia0",modelName="NVIDIA H200",Hostname="node"}} 42
"""
_SINK = """
extensions: {{health_check: {{endpoint: "127.0.0.1:{health}"}}}}
receivers:
{receivers}
exporters:
{exporters}
service:
  extensions: [health_check]
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
{pipelines}
"""


@dataclass
class _Case:
    """A Collector with one of the files, as it is tried."""

    name: str
    signals: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    """What it has beside the ports; `{grpc}` and the like are filled in."""
    is_otlp: bool = True
    """Whether it hands OTLP on, to `{grpc}` or `{http}` of the sink."""
    grpc: int = 0


def _cases() -> list[_Case]:
    all_three = ("metrics", "traces", "profiles")
    gateway = {"GATEWAY_ENDPOINT": "127.0.0.1:{grpc}"}
    return [
        _Case("sidecar", all_three, gateway),
        _Case("node-agent", all_three, {**gateway, "QUEUE_DIRECTORY": "{directory}/queue"}),
        _Case("gateway-balancer", ("metrics", "traces"), {"GATEWAY_HOSTNAME": "127.0.0.1", "GATEWAY_PORT": "{grpc}"}),
        _Case(
            "gateway",
            all_three,
            {"BACKEND_ENDPOINT": "127.0.0.1:{grpc}", "SAMPLING_WAIT": "1s", "SAMPLING_PERCENTAGE": "100"},
        ),
        _Case("tempo", ("traces",), {"TEMPO_ENDPOINT": "127.0.0.1:{grpc}"}),
        _Case("pyroscope", ("profiles",), {"PYROSCOPE_ENDPOINT": "http://127.0.0.1:{http}"}),
        # Nobody answers for the API server: what is not known of a pod yet goes through without.
        _Case(
            "kubernetes",
            ("metrics", "traces"),
            {
                **gateway,
                "K8S_AUTH_TYPE": "none",
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": "{unused}",
                "K8S_NODE_NAME": "node",
            },
        ),
        _Case("prometheus-scrape", ("metrics",), {"PROMETHEUS_ENDPOINT": "127.0.0.1:{scraped}"}, is_otlp=False),
        _Case(
            "dcgm",
            ("metrics",),
            {
                "PROMETHEUS_ENDPOINT": "127.0.0.1:{scraped}",
                "DCGM_ENDPOINT": "127.0.0.1:{dcgm}",
                "DCGM_INTERVAL": "1s",
                "DCGM_TIMEOUT": "1s",
            },
            is_otlp=False,
        ),
        _Case(
            "prometheus-remote-write",
            ("metrics",),
            {"REMOTE_WRITE_ENDPOINT": "http://127.0.0.1:{prometheus}/api/v1/write"},
            is_otlp=False,
        ),
    ]


@contextlib.contextmanager
def _dcgm_exporter() -> Iterator[int]:
    """Answer as NVIDIA's exporter does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(_DCGM.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield listening.server_address[1]
        listening.shutdown()


@contextlib.contextmanager
def _prometheus(directory: Path) -> Iterator[int]:
    """Run a Prometheus that is written to."""
    directory.mkdir()
    (directory / "prometheus.yml").write_text("{}")
    [port] = free_ports(1)
    command = [
        ground.prometheus(),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
        "--enable-feature=native-histograms",
    ]
    with (directory / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield port
        finally:
            process.terminate()


def _sink(directory: Path, cases: list[_Case]) -> tuple[Path, int, dict[str, dict[str, int]]]:
    """Write the configuration of what stands behind all of them; return it with its port of health, and theirs."""
    receivers, exporters, pipelines = [], [], []
    ports = {}
    [health] = free_ports(1)
    for case in cases:
        grpc, http_port = free_ports(2)
        ports[case.name] = {"grpc": grpc, "http": http_port}
        protocols = f'{{grpc: {{endpoint: "127.0.0.1:{grpc}"}}, http: {{endpoint: "127.0.0.1:{http_port}"}}}}'
        receivers.append(f"  otlp/{case.name}: {{protocols: {protocols}}}")
        for signal in case.signals:
            path = directory / f"{case.name}.{signal}.jsonl"
            exporters.append(f'  file/{case.name}-{signal}: {{path: "{path}", flush_interval: 100ms}}')
            pipelines.append(
                f"    {signal}/{case.name}: {{receivers: [otlp/{case.name}], exporters: [file/{case.name}-{signal}]}}"
            )
    config = directory / "sink.yaml"
    parts = {"receivers": receivers, "exporters": exporters, "pipelines": pipelines}
    config.write_text(_SINK.format(health=health, **{name: "\n".join(lines) for name, lines in parts.items()}))
    return config, health, ports


def _agent_config(cases: list[_Case]) -> str:
    exporters = {
        f"otlp/{case.name}": {
            "endpoint": f"http://127.0.0.1:{case.grpc}",
            **({"histograms": "explicit"} if case.name in ("prometheus-scrape", "dcgm") else {}),
        }
        for case in cases
    }
    receivers = {"metrics": ["cuda", "inference", "nvml", "self"], "traces": ["inference"], "profiles": ["profile"]}
    pipelines = {
        signal: {"receivers": names, "exporters": [f"otlp/{case.name}" for case in cases if signal in case.signals]}
        for signal, names in receivers.items()
    }
    config = {
        "receivers": {"cuda": None, "inference": None, "nvml": None, "self": None, "profile": {"types": ["launch"]}},
        "exporters": exporters,
        "service": {"interval": "500ms", "pipelines": pipelines},
    }
    return str(yaml.safe_dump(config))


def _text(url: str) -> str:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return str(answer.read().decode())
    return ""


def _file(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """What came out behind each Collector, by its file and the signal."""
    directory = tmp_path_factory.mktemp("collectors")
    cases = _cases()
    with contextlib.ExitStack() as running:
        dcgm = running.enter_context(_dcgm_exporter())
        prometheus = running.enter_context(_prometheus(directory / "prometheus"))
        behind, health, ports = _sink(directory, [case for case in cases if case.is_otlp])
        (directory / "sink").mkdir()
        running.enter_context(RunningCollector(directory / "sink", [behind], health))
        looks: dict[tuple[str, str], Callable[[], str]] = {}
        for case in cases:
            case.grpc, http_port, own_health, scraped, unused = free_ports(5)
            own = directory / case.name
            own.mkdir()
            filled = {
                "scraped": scraped, "dcgm": dcgm, "prometheus": prometheus, "unused": unused, "directory": own,
                **ports.get(case.name, {}),
            }  # fmt: skip
            environment = {
                "OTLP_GRPC_ENDPOINT": f"127.0.0.1:{case.grpc}",
                "OTLP_HTTP_ENDPOINT": f"127.0.0.1:{http_port}",
                "HEALTH_ENDPOINT": f"127.0.0.1:{own_health}",
                "COLLECTOR_METRICS_LEVEL": "none",
                **{name: value.format(**filled) for name, value in case.environment.items()},
            }
            collector = RunningCollector(own, [_FILES / f"{case.name}.yaml"], own_health, environment)
            running.enter_context(collector)
            for signal in case.signals:
                looks[case.name, signal] = (
                    partial(_file, directory / f"{case.name}.{signal}.jsonl")
                    if case.is_otlp
                    else partial(_text, f"http://127.0.0.1:{scraped}/metrics")
                )
        query = "gpu_cuda_kernel_launch_calls_total"
        looks["prometheus-remote-write", "metrics"] = partial(
            _text, f"http://127.0.0.1:{prometheus}/api/v1/query?query={query}"
        )
        (directory / "agent.yaml").write_text(_agent_config(cases))
        program, port = running.enter_context(server(directory, "everything"))
        arguments = ["--config", directory / "agent.yaml", "--pid", str(program.pid)]
        with Agent(arguments, directory) as agent:
            agent.wait_attached()
            deadline = time.monotonic() + 3 * DEADLINE_S
            while (found := {key: look() for key, look in looks.items()}) and time.monotonic() < deadline:
                if all(_is_there(*key, text) for key, text in found.items()):
                    break
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)) as asking:
                    asking.request("GET", "/work/launch+wait")
                    asking.getresponse().read()
                time.sleep(0.3)
            agent.stop()
    return found


def _is_there(name: str, signal: str, text: str) -> bool:
    wanted = _SEEN[signal]
    if name in ("prometheus-scrape", "dcgm", "prometheus-remote-write"):
        wanted = wanted.replace(".", "_")
    return wanted in text and (name != "dcgm" or "DCGM_FI_DEV_GPU_UTIL" in text)


@pytest.mark.parametrize("path", _CONFIGS, ids=lambda path: path.stem)
def test_it_opens_with_two_lines_that_say_when_to_use_it(path: Path) -> None:
    first, second, third = path.read_text().splitlines()[:3]

    assert first.startswith("# Use it ")
    assert second.startswith("# ")
    assert not third.startswith("#")
    assert max(map(len, path.read_text().splitlines())) < 160


@pytest.mark.parametrize("path", _CONFIGS, ids=lambda path: path.stem)
def test_the_collector_takes_it(path: Path) -> None:
    if path.stem == _NOT_TO_BE_HAD:
        pytest.skip(
            "the receiver otlp_json_file is not on the module proxy; files are compared in test_exporters_collector"
        )
    environment = {"K8S_NODE_NAME": "node", "PATH": "/usr/bin"}
    command = [ground.part("collector"), "validate", GATES, f"--config={path}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_every_file_is_tried_with_every_signal_that_it_takes() -> None:
    wanted = {
        (path.stem, signal.partition("/")[0])
        for path in _CONFIGS
        if path.stem != _NOT_TO_BE_HAD
        for signal in yaml.safe_load(path.read_text())["service"]["pipelines"]
    }

    assert {(case.name, signal) for case in _cases() for signal in case.signals} == wanted


@pytest.mark.parametrize(("name", "signal"), [(case.name, signal) for case in _cases() for signal in case.signals])
def test_what_an_agent_sees_goes_through_it(arrived: dict[tuple[str, str], str], name: str, signal: str) -> None:
    assert _is_there(name, signal, arrived[name, signal]), arrived[name, signal][:2000]


def test_dcgms_series_have_the_id_that_joins_them(arrived: dict[tuple[str, str], str]) -> None:
    [line] = [line for line in arrived["dcgm", "metrics"].splitlines() if line.startswith("DCGM_FI_DEV_GPU_UTIL{")]

    assert dict(re.findall(r'(\w+)="([^"]*)"', line))["hw_id"] == _GPU
    assert "UUID=" not in line
