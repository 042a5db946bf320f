"""How does the processor of pods come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import ProcessorContext, ProcessorFactory
from ...signals import SIGNALS
from .settings import KubernetesProcessorSettings

if TYPE_CHECKING:
    from .processor import PodAttributes


def _create(context: ProcessorContext, settings: KubernetesProcessorSettings) -> PodAttributes:
    from .processor import PodAttributes

    return PodAttributes(context.pods().table, settings.extract, remembers=context.signal == "metrics")


FACTORY = ProcessorFactory(KubernetesProcessorSettings, _create, signals=SIGNALS, needs_pods=True)
