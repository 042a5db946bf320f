"""Where do the figures come from? An agent in this process, or the Prometheus endpoint of one that runs already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from ...config.model import Config
from ...signals.structs import Frozen
from .figures import Figures, Reading, figures

if TYPE_CHECKING:
    from ...service.agent import Agent

_LINGER_S = 10.0
"""For how long a process that has ended is still shown."""


class Taken(Frozen):
    """Figures, and when they were so, by a clock that is never set."""

    figures: Figures
    at_s: float


class Source(Protocol):
    """What can be asked for figures."""

    def take(self) -> Taken:
        """Return the figures of now, or the latest; the same ones again where there are none newer."""

    def is_over(self) -> bool:
        """Say whether nothing is left to be seen."""


class AgentSource:
    """An agent of this process, whose figures nobody gets but who asks."""

    def __init__(self, config: Config) -> None:
        """Take what is to be observed, and how: what `alone` returns."""
        from ...service.agent import Agent

        self._agent: Agent = Agent(config)

    def start(self) -> None:
        """Begin to observe; OtelGpuError where that cannot be."""
        self._agent.start()

    def close(self) -> None:
        """Observe no longer; idempotent."""
        self._agent.stop()

    def take(self) -> Taken:
        at = time.monotonic()
        points = self._agent.snapshot()
        return Taken(figures(Reading(p.resource, p.name, dict(p.attributes), p.value) for p in points), at)

    def is_over(self) -> bool:
        return self._agent.wait(0)


def alone(config: Config, interval_s: float) -> Config:
    """Return the configuration of an agent that observes the same, and sends nothing anywhere."""
    return Config(
        receivers={name: s for name, s in config.used_receivers.items() if name.partition("/")[0] != "profiles"},
        processors=config.processors,
        exporters={},
        discovery=config.discovery,
        # Each interval ends the series of who has ended before.
        interval_s=max(_LINGER_S, 2 * interval_s),
        resource_attributes=config.resource_attributes,
    )
