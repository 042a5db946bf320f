"""How does the receiver of stacks come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, ReceiverFactory
from .settings import ProfileSettings, RecordingSettings, counted, types_of

if TYPE_CHECKING:
    from .receiver import ProfileReceiver


def _create(context: Context, settings: ProfileSettings) -> ProfileReceiver:
    types = types_of(settings)
    counting = context.counting()
    from .receiver import ProfileReceiver

    receiver = ProfileReceiver(
        context.processes,
        context.parsers,
        types,
        tables=counting.tables,
        kernel_name=counting.kernel_name,
        take_busy=counting.take_busy,
        request_tables=counting.request_tables.maps if "inference" in context.types else {},
        request_spans=context.request_spans,
        only=context.pids,
        rules=counting.rules,
        link=counting.link,
        cpu_hz=settings.cpu_hz,
        stacks_per_second=settings.stacks_per_second,
        table_rows=settings.table_rows,
        table_share=context.table_share,
        shows_threads=isinstance(settings, RecordingSettings) and settings.threads,
    )
    counting.before_forgetting(receiver.finish)
    return receiver


FACTORY = ReceiverFactory(
    ProfileSettings,
    _create,
    why_one="its programs and tables are in the kernel once, and take stacks for every pipeline",
    signals=("profiles",),
    places_probes=True,
    counted=counted,
)
