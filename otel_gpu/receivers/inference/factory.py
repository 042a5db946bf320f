"""How does the receiver of requests come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, ReceiverFactory
from ...probes.counted import Counted
from ...signals.telemetry_spans import (
    CALLBACK,
    GPU_BATCH,
    GPU_COPY,
    GPU_REQUEST,
    GPU_WAIT,
    MESSAGE,
    REQUEST,
    SERVICE_CALL,
)
from . import metrics
from .settings import InferenceSettings

if TYPE_CHECKING:
    from .receiver import InferenceReceiver


def _create(context: Context, settings: InferenceSettings) -> InferenceReceiver:
    counting = context.counting()
    from .receiver import InferenceReceiver
    from .server_spans import SpanLimits

    receiver = InferenceReceiver(
        context.processes,
        context.parsers,
        counting.request_tables,
        rules=counting.rules,
        is_chosen=context.is_chosen,
        link=counting.link,
        limits=SpanLimits(settings.max_children),
        table_share=context.table_share,
        request_spans=context.request_spans,
        follows_callbacks=settings.callbacks,
    )
    counting.before_forgetting(receiver.finish)
    return receiver


FACTORY = ReceiverFactory(
    InferenceSettings,
    _create,
    metrics=metrics.SPECS,
    why_one="its programs and tables are in the kernel once, and follow requests for every pipeline",
    signals=("metrics", "traces"),
    spans=(REQUEST, MESSAGE, SERVICE_CALL, CALLBACK, GPU_REQUEST, GPU_BATCH, GPU_WAIT, GPU_COPY),
    places_probes=True,
    # Requests need what the counts know of work.
    counted=lambda _settings: Counted.NO_TIME,
)
