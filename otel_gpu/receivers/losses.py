"""How often did each thing go wrong in the kernel? Counted for each CPU, in a table of every object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..bpf.abi.programs import Loss
from ..bpf.maps import BpfMap
from ..signals import self_metrics
from ..signals.metrics import SelfReading


def read_losses(table: BpfMap) -> dict[Loss, int]:
    """Return the counts since the start, of all CPUs together."""
    found = {}
    for loss in Loss:
        value = table.get(loss.to_bytes(4, "little")) or b""
        found[loss] = sum(int.from_bytes(value[i : i + 8], "little") for i in range(0, len(value), 8))
    return found


def loss_readings(losses: Mapping[Loss, int], prefix: str = "") -> Iterator[SelfReading]:
    """Yield counts of losses as what a receiver measured of itself; `prefix` tells those of its object from others'."""
    for loss, count in losses.items():
        yield SelfReading(self_metrics.EVENTS_LOST, count, {"otel_gpu.event": f"{prefix}{loss.name.lower()}"})
