"""Who is the agent, and what is the hardware? Services like others; of the agent its own variables say what it is called."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..discovery.host import host
from ..discovery.instances import instance_of_host, instance_of_process
from ..discovery.process_info import kernel_info
from ..signals.metrics import Resource, attributes
from ..version import __version__


def agent_resource(configured: Mapping[str, str]) -> Resource:
    """Return what its series carry; `configured` are OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME."""
    return Resource(
        attributes(
            {
                **host(),
                "service.name": "otel-gpu",
                "service.version": __version__,
                "service.instance.id": instance_of_process(os.getpid(), kernel_info(os.getpid()).start_ticks),
                **configured,
                "process.pid": os.getpid(),
                "telemetry.distro.name": "otel-gpu",
                "telemetry.distro.version": __version__,
            }
        )
    )


def hardware_resource(shared: Mapping[str, str]) -> Resource:
    """Return what series of this host's hardware carry; `shared` is what the operator says of all that is observed."""
    named = {"service.name": "otel-gpu-hardware", "service.instance.id": instance_of_host()}
    return Resource(attributes({**named, **host(), **shared}))
