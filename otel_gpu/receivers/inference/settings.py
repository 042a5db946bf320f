"""What can be set of the receiver of requests?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec


@dataclass(frozen=True, slots=True)
class InferenceSettings:
    """Requests to GPU processes, and what the GPU did for them; not there unless it is named."""

    max_children: Annotated[int, msgspec.Meta(ge=0, le=16)] = 16
    """Spans of a request's GPU work, the longest ones; what the others did is in the request's totals."""
    callbacks: bool = True
    """Follow callbacks of ROS 2 as well, in processes that have rclcpp or rclpy."""
