"""How is what can be emitted declared? Metrics as `MetricSpec`, and what their attributes say."""

from __future__ import annotations

from .structs import Frozen

OTHER = "other"
"""What stands for all values of an attribute that are not told apart."""


class AttributeSpec(Frozen):
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
