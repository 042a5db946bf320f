"""How many series may one process have, so that it cannot take the memory of all?

What a process calls its kernels, its devices and its errors is its own word, and so is how many there are.
"""

from __future__ import annotations

from ..signals.metrics import ResourceSeries
from ..signals.structs import Frozen

_PER_METRIC = 2_000
"""The SDKs' limit."""
_LATE = 100
"""For so many programs that come late there is as much room as they shall always find."""
_SHARES = 25
"""One of them has this part of what is left of it, where that is less."""
_PER_KERNEL = 10
"""Series of one metric that a kernel with a name may need: one for each GPU, and some for names that changed."""


class SeriesLimits(Frozen):
    """Where a series store ends. A process at its limit has half of it left for other metrics."""

    per_metric: int = _PER_METRIC
    per_resource: int = 2 * _PER_METRIC
    total: int = 50 * _PER_METRIC
    """Of all together: a resource may have fewer than are left."""
    always: int = _PER_METRIC // 10
    """However many others have: whoever comes late finds room, as long as not too many come."""

    @classmethod
    def for_kernels(cls, top: int) -> SeriesLimits:
        """Return limits that leave room for so many kernels by name in each process."""
        per_metric = max(_PER_METRIC, _PER_KERNEL * top)
        return cls(per_metric, 2 * per_metric, 50 * per_metric, per_metric // 10)

    def allow(self, owner: ResourceSeries, metric: str, size: int) -> bool:
        """Say whether a resource may have one more series of a metric, in a store of so many series."""
        # Beyond the total there is room for those who come late; the less of it is left, the less each of them has.
        late = min(self.always, (self.total + _LATE * self.always - size) // _SHARES)
        room = max(late, min(self.per_resource, self.total - size))
        return owner.counts.get(metric, 0) < self.per_metric and len(owner.series) < room
