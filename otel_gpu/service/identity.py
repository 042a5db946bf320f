"""Who is the agent? A service like others: its own variables say what it is called."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..discovery.host import host
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
                **configured,
                "process.pid": os.getpid(),
                "telemetry.distro.name": "otel-gpu",
                "telemetry.distro.version": __version__,
            }
        )
    )
