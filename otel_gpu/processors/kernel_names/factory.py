"""How does the processor of kernel names come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import ProcessorContext, ProcessorFactory
from .settings import KernelNamesSettings

if TYPE_CHECKING:
    from .processor import KernelNames


def _create(_context: ProcessorContext, settings: KernelNamesSettings) -> KernelNames:
    from .processor import KernelNames

    return KernelNames(settings.top, settings.demangle)


FACTORY = ProcessorFactory(
    KernelNamesSettings, _create, signals=("metrics", "profiles"), kernels_kept=lambda settings: settings.top
)
