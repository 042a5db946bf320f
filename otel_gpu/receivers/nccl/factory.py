"""How does the receiver of NCCL come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, ReceiverFactory
from ...probes.counted import Counted
from ...signals.telemetry_spans import NCCL_COLLECTIVE
from . import metrics
from .settings import NcclSettings

if TYPE_CHECKING:
    from .receiver import NcclReceiver


def _create(context: Context, settings: NcclSettings) -> NcclReceiver:
    counting = context.counting()
    from .loading import NcclPrograms
    from .receiver import NcclReceiver

    tables = counting.tables
    programs = NcclPrograms(
        tables,
        observes_all=not context.pids,
        link=counting.link,
        table_share=context.table_share,
        arrivals_per_second=settings.arrivals_per_second,
    )
    receiver = NcclReceiver(context.processes, context.parsers, programs, tables.kernel, rules=counting.rules)
    counting.before_forgetting(receiver.finish)
    return receiver


FACTORY = ReceiverFactory(
    NcclSettings,
    _create,
    metrics=metrics.SPECS,
    attributes=metrics.ATTRIBUTES,
    why_one="its programs and tables are in the kernel once, and count for every pipeline",
    signals=("metrics", "traces"),
    spans=(NCCL_COLLECTIVE,),
    places_probes=True,
    # Which programs there are, and who they are, is known where their launches are counted.
    counted=lambda _settings: Counted.LAUNCHES,
)
