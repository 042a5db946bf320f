"""How much is seen of a process's RDMA? What a port sends says nothing of it: others use the port, and answers are sent as well."""

from __future__ import annotations

from ...discovery.program_id import ProgramId
from ...signals.structs import Frozen

_ALL_SEEN = 0.999


class Connections(Frozen):
    """What programs have done by now."""

    seen: frozenset[ProgramId]
    """Those that posted or asked for completions where it is seen."""
    direct: frozenset[ProgramId]
    """Those that asked for what one needs to work past libibverbs."""
    ready: frozenset[ProgramId]
    """Those with queue pairs that are ready to send."""
    older: frozenset[ProgramId]
    """Those with such queue pairs that are older than the agent: what they asked for before nobody saw."""

    def coverage(self, program: ProgramId, ratio: float, *, sees_posts: bool) -> str:
        """Return how much is seen of a program whose completions were looked at in a part of the time."""
        if program in self.seen:
            return "full" if ratio >= _ALL_SEEN else "sampled"
        if program in self.direct or (program in self.ready and not sees_posts):
            return "control-only"
        return "unknown" if program in self.older else "idle"
