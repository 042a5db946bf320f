"""Names that OpenTelemetry's conventions have are used as they have them; what they lack is listed here."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import opentelemetry.semconv._incubating.attributes as incubating
import opentelemetry.semconv.attributes as stable
from opentelemetry.semconv._incubating import metrics

import otel_gpu
from otel_gpu import telemetry

_THEIRS = (
    *(
        "client.",
        "container.",
        "cpu.",
        "error.",
        "gen_ai.",
        "host.",
        "http.",
        "hw.",
        "k8s.",
        "network.",
        "os.",
        "process.",
    ),
    *("rpc.", "server.", "service.", "telemetry.", "url."),
)
_OURS = {
    "hw.gpu.clock",
    "hw.gpu.io.rate",
    "hw.gpu.link",
    "hw.gpu.memory.location",
    "hw.gpu.power.limit",
    "hw.gpu.process.memory.usage",
    "hw.gpu.process.utilization",
    "hw.gpu.speed",
    "hw.gpu.speed.limit",
    "hw.gpu.throttle.active",
    "hw.gpu.throttle.reason",
    "hw.gpu.throttle.time",
    "hw.gpu.xid",
}
"""In their namespaces, and not yet in the conventions."""


def _conventions() -> set[str]:
    found = set()
    for package in (incubating, stable, metrics):
        for module in pkgutil.iter_modules(package.__path__):
            values = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
            found |= {value for name, value in values.items() if name.isupper() and isinstance(value, str)}
    return found


def _used() -> set[str]:
    text = "".join(path.read_text() for path in Path(otel_gpu.__path__[0]).rglob("*.py"))
    named = set(re.findall(r'"([a-z]+\.[a-z0-9_.]*[a-z0-9])"', text))
    return {name for name in named | set(telemetry.ALL) | set(telemetry.ATTRIBUTES) if name.startswith(_THEIRS)}


def test_names_in_namespaces_of_the_conventions_are_theirs() -> None:
    used, theirs = _used(), _conventions()

    assert len(used) > 40
    assert used - theirs == _OURS
