"""How is what can be emitted declared? Metrics as `MetricSpec`, and what their attributes say."""

from __future__ import annotations

from dataclasses import dataclass

OTHER = "other"
"""What stands for all values of an attribute that are not told apart."""


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """The declaration of one attribute; `values` lists them all where they are few."""

    name: str
    description: str
    values: tuple[str, ...] = ()


COPY_KINDS = (
    "MemcpyHostToDevice",
    "MemcpyDeviceToHost",
    "MemcpyDeviceToDevice",
    "MemcpyHostToHost",
    "MemcpyDefault",
    "MemcpyPeer",
)
HOST_MEMORIES = ("pageable", "pinned")
MEMORY_TYPES = ("device", "host", "managed", "registered", "async", "virtual")
"""Values that attributes of CUDA and of HIP have alike."""
