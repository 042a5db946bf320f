"""What can be set of the receiver of stacks?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from ...signals.profiles import ProfileType
from ..cuda.settings import CudaSettings

ProfileName = Literal["launch", "wait", "alloc", "inuse", "copy", "gputime", "tensor", "cpu", "offcpu"]


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """`receivers.profile`."""

    types: tuple[ProfileName, ...] = ("launch", "wait", "copy", "alloc", "inuse", "cpu")
    """What is profiled; as `otel-gpu record --type` calls it."""
    cpu_hz: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 49
    """How often each CPU is looked at."""
    stacks_per_second: Annotated[int, msgspec.Meta(ge=4, le=100_000)] = 400
    """Stacks taken of one thread and type; what other calls do is added to them."""
    table_rows: Annotated[int, msgspec.Meta(ge=1 << 16, le=1 << 27)] = 1 << 23
    """Rows of unwinding tables that the kernel holds, each 8 bytes; a PyTorch process has 4 to 9 million, and the files
    that stand on its stacks go first."""


@dataclass(frozen=True, slots=True)
class RecordingSettings(ProfileSettings):
    """Of one recording, which takes just these types."""

    only: tuple[ProfileType, ...] = ()
    cuda: CudaSettings = field(default_factory=CudaSettings)
    """How probes are placed."""
