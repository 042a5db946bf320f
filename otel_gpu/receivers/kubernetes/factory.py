"""How does the receiver of pods' GPUs come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, ReceiverFactory
from ...discovery.kubernetes import metrics
from .settings import KubernetesReceiverSettings

if TYPE_CHECKING:
    from .receiver import PodGpus


def _create(context: Context, _settings: KubernetesReceiverSettings) -> PodGpus:
    from .receiver import PodGpus

    return PodGpus(context.pods(), context.host, context.devices)


FACTORY = ReceiverFactory(
    KubernetesReceiverSettings,
    _create,
    metrics=metrics.SPECS,
    attributes=metrics.ATTRIBUTES,
    why_one="there is one set of pods on a node",
    needs_pods=True,
    # What NVML finds is read before.
    reads_last=True,
)
