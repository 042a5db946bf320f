"""What arrives at a real OpenTelemetry Collector, and what the agent does about endpoints that are none."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from otel_gpu.exporters.otlp.settings import Protocol
from tests.e2e import comparison, ground
from tests.e2e.collector import Collector, free_ports
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Agent, Program


def _storm(*options: str) -> list[str | Path]:
    return [ground.part("programs") / "launch_storm", "--gate", *options]


def _otlp(protocol: str, port: int) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1000",
    }


@pytest.mark.parametrize(("protocol", "compression"), (("grpc", "gzip"), ("http/protobuf", "none")))
def test_what_a_collector_receives_is_what_happened(
    protocol: Protocol, compression: str, collector: Collector, tmp_path: Path
) -> None:
    """Every pair of protocol and compression is in `test_exporters_collector`."""
    options = ("--threads", "2", "--launches", "20000", "--memory", "4", "--graphs", "2")
    with Program(_storm(*options), tmp_path) as program:
        environment = {**_otlp(protocol, collector.port(protocol)), "OTEL_EXPORTER_OTLP_COMPRESSION": compression}
        program.ready()
        with Agent(["--pid", str(program.pid), "--output", "otlp"], tmp_path, environment) as agent:
            agent.wait_attached()
            program.run_phase()
            truth = program.finish()
            agent.stop()
    received = collector.received_metrics(protocol)

    comparison.assert_all(received.of(truth.pid), truth)
    comparison.assert_nothing_lost(received)


def test_a_collector_that_comes_late_gets_everything(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with Program(_storm("--launches", "20000"), tmp_path) as program:
        program.ready()
        arguments = ["--pid", str(program.pid), "--output", "otlp"]
        with Agent(arguments, tmp_path, _otlp("grpc", port)) as agent:
            agent.wait_attached()
            program.run_phase()
            # An interval fails before there is a Collector to take it.
            agent.wait_for("export of metrics to .* fails")
            with Collector(tmp_path / "collector", grpc_port=port) as collector:
                truth = program.finish()
                agent.wait_for("export of metrics to .* works again")
                agent.stop()
                received = collector.received_metrics("grpc")

    assert received.of(truth.pid).total(comparison.LAUNCHES) == truth.launches.total()


def test_sigterm_in_the_middle_of_a_run_flushes_the_last_interval(tmp_path: Path) -> None:
    with Program(_storm("--phases", "2", "--launches", "5000"), tmp_path) as program:
        program.ready()
        # An interval that never ends by itself: all that is exported is what the end flushes.
        environment = {"OTEL_METRIC_EXPORT_INTERVAL": "3600000"}
        arguments = ["--pid", str(program.pid), "--output", f"file:{tmp_path / 'out'}"]
        with Agent(arguments, tmp_path, environment) as agent:
            agent.wait_attached()
            program.run_phase()
            program.ready()
            seen = program.truth_now()
            agent.stop()
        program.run_phase()
        program.finish()

    comparison.assert_launches(read_metrics(tmp_path / "out").of(seen.pid), seen)


def test_duration_ends_the_run(tmp_path: Path) -> None:
    with Program(_storm(), tmp_path) as program:
        program.ready()
        arguments = ["--pid", str(program.pid), "--duration", "2", "--output", f"file:{tmp_path / 'out'}"]
        with Agent(arguments, tmp_path) as agent:
            agent.wait_attached()
            program.run_phase()
            assert agent.wait() == 0, agent.error_text
        truth = program.finish()

    comparison.assert_launches(read_metrics(tmp_path / "out").of(truth.pid), truth)


def test_a_target_that_dies_is_not_waited_for(tmp_path: Path) -> None:
    with Program(_storm(), tmp_path) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), "--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent:
            agent.wait_attached()
            os.kill(program.pid, signal.SIGKILL)
            program.process.wait()
            assert agent.wait() == 0, agent.error_text
            assert "Traceback" not in agent.error_text
