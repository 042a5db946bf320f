"""How does the receiver that measures the agent come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, ReceiverFactory
from ...signals import self_metrics
from .settings import SelfSettings

if TYPE_CHECKING:
    from .receiver import SelfReceiver


def _create(context: Context, _settings: SelfSettings) -> SelfReceiver:
    from .receiver import SelfReceiver

    return SelfReceiver(context.agent, context.readings, context.health)


FACTORY = ReceiverFactory(
    SelfSettings,
    _create,
    metrics=self_metrics.SPECS,
    why_one="there is one agent",
    reads_last=True,
)
