"""How does the processor of resources come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import ProcessorContext, ProcessorFactory
from ...signals import SIGNALS
from .settings import ResourceSettings

if TYPE_CHECKING:
    from .processor import ResourceAttributes


def _create(_context: ProcessorContext, settings: ResourceSettings) -> ResourceAttributes:
    from .processor import ResourceAttributes

    return ResourceAttributes(settings.attributes)


FACTORY = ProcessorFactory(ResourceSettings, _create, signals=SIGNALS)
