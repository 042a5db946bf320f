"""What can be set of the receiver of stacks?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from ...probes.counted import Counted
from ...signals.profiles import ProfileType, chosen_types, shows_gpu_time

ProfileName = Literal["launch", "wait", "alloc", "inuse", "copy", "gputime", "tensor", "cpu", "offcpu"]


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """Stacks of what programs do; not there unless it is named."""

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
    threads: bool = False
    """What threads do can be asked for."""


def types_of(settings: ProfileSettings) -> tuple[ProfileType, ...]:
    """Return the profile types that the settings ask for."""
    if isinstance(settings, RecordingSettings):
        return settings.only
    return chosen_types(settings.types)


def counted(settings: ProfileSettings) -> Counted:
    """Return how much must be counted: profiles need what the counts know of kernels and captures."""
    return Counted.ALL if shows_gpu_time(types_of(settings)) else Counted.LAUNCHES
