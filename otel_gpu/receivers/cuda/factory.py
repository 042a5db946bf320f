"""How does the receiver of CUDA and HIP come to be?"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ...components import Context, Needs, ReceiverFactory
from ...probes.counted import Counted
from ...signals import cuda, hip
from . import installed
from .settings import CountingSettings, CudaSettings

if TYPE_CHECKING:
    from .receiver import CudaReceiver


def _create(context: Context, settings: CudaSettings | CountingSettings) -> CudaReceiver:
    from ...discovery import drivers
    from .loading import CudaPrograms

    if isinstance(settings, CountingSettings):
        counted, settings = settings.counted, settings.placing
    else:
        counted = Counted.ALL if settings.busy_time else Counted.NO_TIME
    with ThreadPoolExecutor(1, "loading") as beside:
        loading = beside.submit(
            CudaPrograms,
            map_entries=settings.map_entries,
            link=settings.link,
            only=context.pids,
            counted=counted,
            table_share=context.table_share,
            follows_requests="inference" in context.types,
            follows_children=context.follows_children,
        )
        # What the programs are read with is imported while the kernel checks them.
        from ...processors.devices import DeviceNames
        from ...processors.hip_devices import HipDeviceNames
        from ...processors.untracked_memory import UntrackedMemory
        from .receiver import CudaReceiver
    receiver = CudaReceiver(
        context.processes,
        context.parsers,
        loading.result(),
        policy=settings.site,
        allow_single_step=settings.arm64_single_step or not drivers.is_arm64(),
        libraries=settings.libraries,
    )
    context.devices.ask(receiver.device_uuids)
    context.complete(DeviceNames(context.devices))
    context.complete(UntrackedMemory())
    if not receiver.hip_devices.is_empty:
        context.complete(HipDeviceNames(receiver.hip_devices))
    return receiver


FACTORY = ReceiverFactory(
    CudaSettings,
    _create,
    metrics=cuda.SPECS + hip.SPECS,
    why_one="its programs and tables are in the kernel once, and count for every pipeline",
    places_probes=True,
    needs=lambda settings: Needs(link=settings.link),
    checks=installed.checks,
    counts_for_others=CountingSettings,
)
