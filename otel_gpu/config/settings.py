"""What can be set, part by part? Frozen values with the defaults of what a file leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from ..components.values import parse_endpoint
from ..discovery.kubernetes.settings import KubernetesSettings
from ..discovery.selection import Rule
from ..errors import ConfigError

DEFAULT_INTERVAL_S = 10.0
_OF_EACH = ("process.", "container.", "telemetry.", "service.instance.")
"""What tells one process from another."""

LogLevel = Literal["debug", "info", "warn", "error"]


@dataclass(frozen=True, slots=True)
class HealthCheckSettings:
    """Says over HTTP whether the agent lives and is ready; not started unless `service.extensions` names it."""

    endpoint: str = "localhost:13133"
    """Where it listens: `HOST:PORT`; without a host, on every address of this machine."""
    path: str = "/"
    """What is asked for; liveness and readiness are `live` and `ready` below it."""

    def __post_init__(self) -> None:
        parse_endpoint(self.endpoint, "localhost:13133")
        if not self.path.startswith("/") or not self.path.isprintable() or not self.path.isascii() or " " in self.path:
            raise ConfigError(f"path: {self.path!r} is no path; write one such as /health")


@dataclass(frozen=True, slots=True)
class Discovery:
    """Which processes are observed."""

    pids: tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 22)], ...] = ()
    """These; none means all."""
    all: bool = False
    """Every GPU process, whatever `pids` says."""
    children: bool = True
    """The descendants of `pids` too, those that run and those that start later."""
    resource_attributes: dict[str, str] = field(default_factory=dict)
    """What is added to whatever is observed; behind what a process says of itself, but for what holds of the whole host."""

    include: tuple[Rule, ...] = ()
    """Programs of which one rule or more is so; none: all."""
    exclude: tuple[Rule, ...] = ()
    """Programs that are left out of these."""
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    """Where it is asked which pods there are, once a rule or a component needs to know."""

    def __post_init__(self) -> None:
        for key in self.resource_attributes:
            if not key or key.lower().startswith(_OF_EACH):
                raise ConfigError(
                    f"resource_attributes: {key!r} cannot be the same of all that is observed; leave it out, or name a cluster, an "
                    "environment or a team"
                )

    @property
    def everything(self) -> bool:
        """True when no process is left out."""
        return self.all or not self.pids


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One signal's way through the parts, by their ids."""

    receivers: tuple[str, ...]
    processors: tuple[str, ...]
    exporters: tuple[str, ...]


ReceiverSettings = object
ProcessorSettings = object
ExporterSettings = object
"""Of whatever type their factories say."""

EXTENSIONS: dict[str, type[HealthCheckSettings]] = {"health_check": HealthCheckSettings}
"""Settings by component type."""


def component_type(component: str) -> str:
    """Return the type of an id, `type` or `type/name`."""
    return component.partition("/")[0]


def check_id(group: str, component: str) -> None:
    """Raise ConfigError for an id that has a slash and no type before it, or no name after it."""
    kind, slash, name = component.partition("/")
    if not kind.strip():
        raise ConfigError(f"{group}.{component}: an id begins with its type; write type or type/name")
    if slash and not name.strip():
        raise ConfigError(f"{group}.{component}: the name after the slash is missing; write {kind}, or {kind}/name")
