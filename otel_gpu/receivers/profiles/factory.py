"""How does the receiver of stacks come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, ReceiverFactory
from ...probes.counted import Counted
from ...signals.profiles import CHOICES, ProfileType, shows_gpu_time
from ..cuda.settings import CountingSettings, CudaSettings
from .settings import ProfileSettings, RecordingSettings

if TYPE_CHECKING:
    from ..cuda.receiver import CudaReceiver
    from .receiver import ProfileReceiver


def types_of(settings: ProfileSettings) -> tuple[ProfileType, ...]:
    """Return the profile types that the settings ask for."""
    if isinstance(settings, RecordingSettings):
        return settings.only
    return tuple(dict.fromkeys(kind for choice in settings.types for kind in CHOICES[choice]))


def _create(context: Context, settings: ProfileSettings) -> ProfileReceiver:
    types = types_of(settings)
    cuda: CudaReceiver = context.receiver("cuda", _counting(settings, types))
    from .receiver import ProfileReceiver

    receiver = ProfileReceiver(
        context.processes,
        context.parsers,
        types,
        tables=cuda.tables,
        kernel_name=cuda.kernel_name,
        take_busy=cuda.take_busy,
        only=context.pids,
        rules=cuda.rules,
        link=cuda.link,
        cpu_hz=settings.cpu_hz,
        stacks_per_second=settings.stacks_per_second,
        table_rows=settings.table_rows,
        table_share=context.table_share,
    )
    cuda.before_forgetting(receiver.finish)
    return receiver


def _counting(settings: ProfileSettings, types: tuple[ProfileType, ...]) -> CountingSettings:
    """Return what is counted where no metrics are wanted: profiles need what the counts know of kernels and captures."""
    cuda = settings.cuda if isinstance(settings, RecordingSettings) else CudaSettings()
    return CountingSettings(
        cuda.map_entries,
        cuda.site,
        cuda.libraries,
        cuda.arm64_single_step,
        cuda.link,
        cuda.busy_time,
        counted=Counted.ALL if shows_gpu_time(types) else Counted.LAUNCHES,
    )


FACTORY = ReceiverFactory(
    ProfileSettings,
    _create,
    why_one="its programs and tables are in the kernel once, and take stacks for every pipeline",
    signals=("profiles",),
    places_probes=True,
)
