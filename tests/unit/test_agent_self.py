"""The agent is a service like others: its own variables say what it is called."""

from __future__ import annotations

import os

from otel_gpu.receivers.self.receiver import SelfReceiver
from otel_gpu.service.identity import agent_resource, hardware_resource


def test_the_agents_own_variables_name_it() -> None:
    named = {"service.name": "gpu-agent", "deployment.environment.name": "test", "process.pid": "1"}

    (resource,) = {m.resource for m in SelfReceiver(agent_resource(named)).collect()}

    found = dict(resource.attributes)
    assert (found["service.name"], found["deployment.environment.name"]) == ("gpu-agent", "test")
    assert (found["process.pid"], found["telemetry.distro.name"]) == (os.getpid(), "otel-gpu")


def test_without_variables_it_is_otel_gpu() -> None:
    (resource,) = {m.resource for m in SelfReceiver(agent_resource({})).collect()}

    assert dict(resource.attributes)["service.name"] == "otel-gpu"


def test_agent_and_hardware_are_two_instances_and_stay_the_same() -> None:
    ids = [dict(one.attributes)["service.instance.id"] for one in (agent_resource({}), hardware_resource({}))]

    assert ids == [dict(one.attributes)["service.instance.id"] for one in (agent_resource({}), hardware_resource({}))]
    assert len({*ids, "mine"}) == 3
    assert dict(agent_resource({"service.instance.id": "mine"}).attributes)["service.instance.id"] == "mine"
    assert dict(hardware_resource({"team": "a"}).attributes)["team"] == "a"
