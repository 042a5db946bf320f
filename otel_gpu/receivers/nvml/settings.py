"""What can be set of the receiver of hardware metrics?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NvmlSettings:
    """What NVML says of the GPUs, where it is there."""
