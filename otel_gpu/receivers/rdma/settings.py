"""What can be set of the receiver of RDMA?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec


@dataclass(frozen=True, slots=True)
class RdmaSettings:
    """Queue pairs, completions and ports of RDMA devices; not there unless it is named."""

    processes: Literal["observed", "all"] = "observed"
    """Whose operations are counted: of observed (GPU) processes, or of all that map libibverbs."""
    queue_pairs: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    """The busiest queue pairs of each process have their numbers on their series: so many at a time, twice as many in its life;
    the rest have none."""
    polls: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1_000
    """Calls of poll_cq a second up to which all of a process's are looked at; who asks more often is looked at in windows."""
    ports: bool = True
    """Read the counters of the ports of this host."""
