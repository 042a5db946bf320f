"""How is an exporter made? What it is, `otel_gpu.exporters.Exporter` says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..bpf.needs import Check, Needs, checks_nothing, needs_nothing
from ..signals import Signal
from .variables import Variables


@dataclass(frozen=True, slots=True)
class ExporterContext:
    """What an exporter is told of where it stands."""

    name: str
    """Its id in the configuration."""
    signals: frozenset[Signal]
    """Of the pipelines that it stands in."""


@dataclass(frozen=True, slots=True)
class Written:
    """How the settings of an exporter stand in a configuration, and what stands beside it."""

    keys: frozenset[str]
    """Those that are there; others have their defaults."""
    where: str
    """How an error names the place: `agent.yaml: exporters.otlp`."""
    variables: Variables
    """The environment."""


@dataclass(frozen=True, slots=True)
class ExporterFactory:
    """A type of exporters: objects with a method of `otel_gpu.exporters.Exporter`, or exporters of the SDK."""

    settings: type
    """A frozen dataclass: the keys of the configuration."""
    create: Callable[[ExporterContext, Any], object]
    """From the context and the settings; OtelGpuError where that cannot be. One is made of what several signals share."""
    signals: tuple[Signal, ...] = ("metrics",)
    """What it can carry."""
    resolve: Callable[[Any, Written], Mapping[Signal, object]] | None = None
    """What `create` gets for each signal, of settings as they are written; None: these."""
    check: Callable[[Any, Signal], None] | None = None
    """Raises ConfigError for what `create` cannot be given for a signal."""
    needs: Callable[[Any, Signal], Needs] = needs_nothing
    """What it needs of the host with the settings of a signal."""
    checks: Callable[[str, Any, Signal], Iterable[Check]] = checks_nothing
    """What `otel-gpu doctor` tries of the exporter of an id, with the settings of a signal."""
