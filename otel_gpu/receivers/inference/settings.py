"""What can be set of the receiver of requests?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec


@dataclass(frozen=True, slots=True)
class InferenceSettings:
    """`receivers.inference`."""

    max_children: Annotated[int, msgspec.Meta(ge=0, le=16)] = 16
    """Spans of a request's GPU work, the longest ones; what the others did is in the request's totals."""
