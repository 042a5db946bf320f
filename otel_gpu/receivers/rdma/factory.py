"""How does the receiver of RDMA come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, ReceiverFactory
from ...probes.counted import Counted
from . import metrics
from .settings import RdmaSettings

if TYPE_CHECKING:
    from .receiver import RdmaReceiver


def _create(context: Context, settings: RdmaSettings) -> RdmaReceiver:
    counting = context.counting()
    from .receiver import RdmaReceiver

    receiver = RdmaReceiver(
        context.processes,
        context.parsers,
        counting.request_tables,
        settings,
        context.host,
        is_chosen=context.is_chosen,
        rules=counting.rules,
        link=counting.link,
        table_share=context.table_share,
    )
    counting.before_forgetting(receiver.finish)
    return receiver


FACTORY = ReceiverFactory(
    RdmaSettings,
    _create,
    metrics=metrics.SPECS,
    attributes=metrics.ATTRIBUTES,
    why_one="its programs and tables are in the kernel once, and count for every pipeline",
    places_probes=True,
    # Which programs there are, and what each has in tables, is known to those that count.
    counted=lambda _settings: Counted.NO_TIME,
)
