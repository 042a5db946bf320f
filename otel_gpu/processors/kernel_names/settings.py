"""What can be set of the processor of kernel names?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec


@dataclass(frozen=True, slots=True)
class KernelNamesSettings:
    """How kernels are called, and how many of them have a series of their own."""

    top: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 50
    """Kernels of a process that keep their name, the rest being `other`; 0 turns names off."""
    demangle: Literal["full", "short", "off"] = "full"
    """As in the source code, without template arguments and parameters, or as the driver knows them."""
