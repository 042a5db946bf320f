"""How does the receiver of requests come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, ReceiverFactory
from ...probes.counted import Counted
from ...telemetry_spans import GPU_BATCH, GPU_COPY, GPU_REQUEST, GPU_WAIT, REQUEST
from ..cuda.settings import CountingSettings
from . import metrics
from .settings import InferenceSettings

if TYPE_CHECKING:
    from ..cuda.receiver import CudaReceiver
    from .receiver import InferenceReceiver


def _create(context: Context, settings: InferenceSettings) -> InferenceReceiver:
    # Where no metrics are wanted: requests need what the counts know of work.
    cuda: CudaReceiver = context.receiver("cuda", CountingSettings(counted=Counted.NO_TIME))
    from .receiver import InferenceReceiver
    from .server_spans import SpanLimits

    receiver = InferenceReceiver(
        context.processes,
        context.parsers,
        cuda.request_tables,
        rules=cuda.rules,
        only=context.pids,
        link=cuda.link,
        limits=SpanLimits(settings.max_children),
        table_share=context.table_share,
    )
    cuda.before_forgetting(receiver.finish)
    return receiver


FACTORY = ReceiverFactory(
    InferenceSettings,
    _create,
    metrics=metrics.SPECS,
    attributes=metrics.ATTRIBUTES,
    why_one="its programs and tables are in the kernel once, and follow requests for every pipeline",
    signals=("metrics", "traces"),
    spans=(REQUEST, GPU_REQUEST, GPU_BATCH, GPU_WAIT, GPU_COPY),
    places_probes=True,
)
