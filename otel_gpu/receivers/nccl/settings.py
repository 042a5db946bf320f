"""What can be set of the receiver of NCCL?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec


@dataclass(frozen=True, slots=True)
class NcclSettings:
    """Collectives of NCCL and RCCL; not there unless it is named."""

    arrivals_per_second: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 256
    """Collectives of a communicator whose ranks' arrivals are compared, and told as spans; of more every second, fourth, …
    is. 0 for none."""
