"""How often did each thing go wrong in the kernel? Counted for each CPU, in a table of every object."""

from __future__ import annotations

from ..abi import Loss
from ..bpf.maps import BpfMap


def read_losses(table: BpfMap) -> dict[Loss, int]:
    """Return the counts since the start, of all CPUs together."""
    found = {}
    for loss in Loss:
        value = table.get(loss.to_bytes(4, "little")) or b""
        found[loss] = sum(int.from_bytes(value[i : i + 8], "little") for i in range(0, len(value), 8))
    return found
