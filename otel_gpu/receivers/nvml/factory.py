"""How does the receiver of hardware metrics come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import Context, Needs, ReceiverFactory
from ...signals import hardware
from .settings import NvmlSettings

if TYPE_CHECKING:
    from .worker import NvmlWorker


def _create(context: Context, _settings: NvmlSettings) -> NvmlWorker:
    from .receiver import NvmlReceiver
    from .worker import NvmlWorker

    devices = context.devices
    return NvmlWorker(NvmlReceiver(context.host, process_resource=devices.resource), devices.learn)


FACTORY = ReceiverFactory(
    NvmlSettings,
    _create,
    metrics=hardware.SPECS,
    why_one="another one would read the same GPUs",
    # NVML names processes by their pids alone.
    needs=lambda _settings: Needs(processes=True),
)
