"""The agent is a service like others: its own variables say what it is called."""

from __future__ import annotations

import os

from otel_gpu.receivers.self.receiver import SelfReceiver
from otel_gpu.service.identity import agent_resource


def test_the_agents_own_variables_name_it() -> None:
    named = {"service.name": "gpu-agent", "deployment.environment.name": "test", "process.pid": "1"}

    (resource,) = {m.resource for m in SelfReceiver(agent_resource(named)).collect()}

    found = dict(resource.attributes)
    assert (found["service.name"], found["deployment.environment.name"]) == ("gpu-agent", "test")
    assert (found["process.pid"], found["telemetry.distro.name"]) == (os.getpid(), "otel-gpu")


def test_without_variables_it_is_otel_gpu() -> None:
    (resource,) = {m.resource for m in SelfReceiver(agent_resource({})).collect()}

    assert dict(resource.attributes)["service.name"] == "otel-gpu"
