"""What is asked for in OpenTelemetry's own ways: by its variables, or by its declarative file in place of them?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..components.variables import Variables
from ..signals import Signal
from .environ import Environment


@dataclass(frozen=True, slots=True)
class Standard:
    """What goes behind the agent's file and the command line."""

    disabled: bool
    interval_s: float | None
    log_level: str | None
    resource_attributes: tuple[tuple[str, str], ...]
    exporters: Mapping[str, tuple[str, object]]
    """By id: where an exporter stands, and its settings as they would stand in the agent's file."""
    usual_exporters: Mapping[Signal, tuple[str, ...]]
    """By signal; none: each goes to all exporters that can carry it."""
    variables: Variables
    """What exporters ask for what is not written."""
    notices: tuple[str, ...]
    """What has no effect; of variables that exporters ask for, not before they have."""


def from_environment(environment: Environment, where: str) -> Standard:
    """Return what the variables say; `where` names the place of an error."""
    of_signal = environment.exporters
    names = dict.fromkeys(name for names in of_signal.values() for name in names)
    return Standard(
        disabled=environment.disabled,
        interval_s=environment.interval_s,
        log_level=environment.log_level,
        resource_attributes=environment.resource_attributes,
        exporters={name: (f"{where}exporters.{name}", None) for name in names},
        usual_exporters=of_signal if len(set(of_signal.values())) > 1 else {},
        variables=environment,
        notices=(),
    )
