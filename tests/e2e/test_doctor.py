"""Does `otel-gpu doctor` find out what is wrong, at a real Collector and in real directories, and `run` say it too?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.exporters.otlp.settings import Protocol
from tests.e2e.collector import Collector, free_ports
from tests.e2e.processes import DEADLINE_S, Agent

_ROOT = Path(__file__).parent.parent.parent
_PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http/protobuf", "http/json")


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """One of its own: it lacks the pipelines of the other signals."""
    with Collector(tmp_path_factory.mktemp("collector"), signals=("metrics",)) as collector:
        yield collector


def _doctor(*arguments: str | Path, within: tuple[str, ...] = (), **variables: str) -> list[dict[str, object]]:
    clean = {name: "" for name in os.environ if name.startswith(("OTEL_", "GRPC_"))}
    # An empty variable is as good as none; gRPC would take it for a wish to hear everything.
    environment = {**os.environ, **clean, "GRPC_VERBOSITY": "", "PYTHONPATH": str(_ROOT), **variables}
    command = [*within, sys.executable, "-m", "otel_gpu", "doctor", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment)
    # Nothing of gRPC's own.
    assert [line for line in done.stderr.splitlines() if line != "trying what the agent does"] == []
    return json.loads(done.stdout)


def _endpoints(*arguments: str | Path, **variables: str) -> list[dict[str, object]]:
    return [c for c in _doctor(*arguments, **variables) if str(c["check"]).startswith("endpoint ")]


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_a_collector_takes_an_empty_request(collector: Collector, protocol: Protocol) -> None:
    [check] = _endpoints(OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint(protocol), OTEL_EXPORTER_OTLP_PROTOCOL=protocol)

    assert (check["ok"], check["fix"]) == (True, None)
    assert str(check["detail"]).endswith("accepted")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_tls_where_there_is_none_names_the_variable_that_says_so(collector: Collector, protocol: Protocol) -> None:
    endpoint = collector.endpoint(protocol).replace("http://", "https://")

    [check] = _endpoints(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=endpoint, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)

    assert not check["ok"]
    assert "with TLS" in str(check["detail"])
    assert "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT" in str(check["fix"])


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_collector_without_profiles_lacks_a_gate_and_a_pipeline(collector: Collector, protocol: Protocol) -> None:
    metrics, profiles = _endpoints(
        "--profiles",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint(protocol),
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
    )

    assert metrics["ok"]
    assert not profiles["ok"]
    assert "--feature-gates=service.profilesSupport" in str(profiles["detail"])
    assert "a pipeline `profiles`" in str(profiles["detail"])


def test_the_key_is_named_that_says_where_a_signal_goes(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = tmp_path / "agent.yaml"
    config.write_text(f"exporters: {{otlp/there: {{metrics_endpoint: 'http://127.0.0.1:{port}'}}}}")

    [check] = _endpoints("--config", config)

    assert "exporters.otlp/there.metrics_endpoint" in str(check["fix"])


def test_a_directory_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    new, there, planted = tmp_path / "new" / "er", tmp_path / "there", tmp_path / "planted"
    there.mkdir()
    planted.mkdir()
    (planted / "metrics.jsonl").symlink_to("/etc/passwd")

    found = {
        place: next(c for c in _doctor("--output", f"file:{place}") if str(c["check"]).startswith("output "))
        for place in (new, there, planted, Path("/proc/nowhere"))
    }

    assert [c["ok"] for c in found.values()] == [True, True, False, False]
    assert "symbolic link" in str(found[planted]["detail"])
    assert "--output file:DIR" in str(found[planted]["fix"])
    assert not new.parent.exists()
    assert list(there.iterdir()) == []


def test_a_private_pid_namespace_hides_the_others() -> None:
    checks = _doctor(within=("unshare", "--pid", "--fork", "--mount-proc"))

    [namespace] = [c for c in checks if c["check"] == "pid namespace"]
    assert not namespace["ok"]
    assert "hostPID: true" in str(namespace["fix"])


def test_a_run_that_delivers_nothing_fails_and_says_so(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with Agent(["--duration", "2"], tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}) as agent:
        assert agent.wait() == 1

    assert "nothing could be delivered" in agent.error_text


def test_a_run_that_delivers_succeeds(collector: Collector, tmp_path: Path) -> None:
    with Agent(["--duration", "2"], tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint("grpc")}) as agent:
        assert agent.wait() == 0


def test_a_process_without_cuda_is_said_to_be_one(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as program:
        try:
            with Agent(["--pid", str(program.pid), "--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent:
                agent.wait_for(rf"process {program.pid} has mapped no library of CUDA or HIP")
                agent.stop()
        finally:
            program.kill()
