"""How does the receiver of RDMA come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, ReceiverFactory
from ...probes.counted import Counted
from ..cuda.settings import CountingSettings
from . import metrics
from .settings import RdmaSettings

if TYPE_CHECKING:
    from ..cuda.receiver import CudaReceiver
    from .receiver import RdmaReceiver


def _create(context: Context, settings: RdmaSettings) -> RdmaReceiver:
    # Which programs there are, and what each has in tables, is known to those that count.
    cuda: CudaReceiver = context.receiver("cuda", CountingSettings(counted=Counted.NO_TIME))
    from .receiver import RdmaReceiver

    receiver = RdmaReceiver(
        context.processes,
        context.parsers,
        cuda.request_tables,
        settings,
        context.host,
        only=context.pids,
        rules=cuda.rules,
        link=cuda.link,
        table_share=context.table_share,
    )
    cuda.before_forgetting(receiver.finish)
    return receiver


FACTORY = ReceiverFactory(
    RdmaSettings,
    _create,
    metrics=metrics.SPECS,
    attributes=metrics.ATTRIBUTES,
    why_one="its programs and tables are in the kernel once, and count for every pipeline",
    places_probes=True,
)
