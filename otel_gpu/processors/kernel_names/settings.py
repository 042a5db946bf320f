"""What can be set of the processor of kernel names?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec


@dataclass(frozen=True, slots=True)
class KernelNamesSettings:
    """`processors.kernel_names`."""

    top: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 50
    """Kernels of a process that keep their name, the rest being `other`; 0 turns names off."""
    demangle: Literal["full", "short", "off"] = "full"
    """As in the source code, without template arguments and parameters, or as the driver knows them."""
