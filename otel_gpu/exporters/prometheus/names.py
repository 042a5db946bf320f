"""What are metrics and attributes called in Prometheus? As OpenTelemetry's specification translates them.

"Prometheus and OpenMetrics Compatibility", as the Collector and the SDKs do it, so that a dashboard shows the same whichever way
the metrics came.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...signals.metrics import Attributes, Instrument, MetricSpec
from ..wire.utf8 import utf8

COLLECTED = "X-Otel-Gpu-Collected"
"""The header that says when what is told was so, in nanoseconds of the wall clock: `otel-gpu top` has rates from it."""

_UNITS = {
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "W": "watts",
    "J": "joules",
    "V": "volts",
    "A": "amperes",
    "Cel": "celsius",
    "Hz": "hertz",
    "%": "percent",
}
_PER = {"s": "second", "m": "minute", "h": "hour"}
_OTHER = re.compile(r"[^a-zA-Z0-9_]+")
_ANNOTATION = re.compile(r"\{[^}]*\}")


@lru_cache(maxsize=4096)
def family(spec: MetricSpec) -> str:
    """Return a metric's name, without the `_total` of a counter."""
    name = _plain(spec.name)
    unit = _unit(spec)
    words = name.split("_")
    if spec.instrument is Instrument.COUNTER and words[-1] == "total":
        words.pop()
    if unit and unit not in words and not name.endswith(unit):
        words.append(unit)
    return "_".join(words)


def labels(attributes: Attributes) -> dict[str, str]:
    """Return attributes as labels; the values of those that have one name there are joined, in the order of their keys."""
    found: dict[str, str] = {}
    for key, value in attributes:
        name = _label(key)
        text = ("true" if value else "false") if isinstance(value, bool) else utf8(str(value))
        found[name] = f"{found[name]};{text}" if name in found else text
    return found


def _unit(spec: MetricSpec) -> str:
    whole, _, per = _ANNOTATION.sub("", spec.unit).partition("/")
    if whole == "1" and not per:
        return "ratio" if spec.instrument is Instrument.GAUGE else ""
    unit = "" if whole in ("", "1") else _UNITS.get(whole, _plain(whole))
    return f"{unit}_per_{_PER.get(per, _plain(per))}".lstrip("_") if per else unit


@lru_cache(maxsize=4096)
def _label(key: str) -> str:
    name = _plain(key)
    # What begins with two underscores is Prometheus's own.
    return f"key{name}" if name.startswith("__") else name


def _plain(name: str) -> str:
    plain = re.sub("__+", "_", _OTHER.sub("_", name))
    return f"_{plain}" if plain[:1].isdigit() or not plain else plain
