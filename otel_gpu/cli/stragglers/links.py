"""Which link of a communicator is slow? RDMA's latencies on its queue pairs, compared link by link.

Pure. Work of one kind is compared with the same work of the communicator on other links: a link is slow whose mean latency is
several times the median of theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median

from ...signals.structs import Frozen, Record


class Link(Frozen, order=True):
    """From a port to an address, for one communicator and one kind of work."""

    comm: str
    operation: str
    host: str
    device: str
    port: int
    peer: str
    """An IP address or a GID; empty where it is not known."""


class Latency(Record):
    """Of work that was seen completed."""

    requests: int = 0
    total_s: float = 0.0


class SlowLink(Frozen):
    """A link on which a communicator's work takes longer than on its others."""

    link: Link
    mean_s: float
    others_s: float
    """The median of the others' means."""
    requests: int


def slow_links(
    latencies: Mapping[Link, Latency], *, times: float, fewest: int, fewest_links: int = 3
) -> Iterator[SlowLink]:
    """Yield links whose mean is so many `times` that of the others.

    Of links with fewer than `fewest` requests, and of work on fewer than `fewest_links`, nothing is said: of two, nobody knows
    whether the one is slow or the other fast.
    """
    kinds: dict[tuple[str, str], dict[Link, float]] = defaultdict(dict)
    for link, latency in sorted(latencies.items()):
        if latency.requests >= max(fewest, 1):
            kinds[link.comm, link.operation][link] = latency.total_s / latency.requests
    for means in kinds.values():
        if len(means) < fewest_links:
            continue
        for link, mean in means.items():
            others = median(m for other, m in means.items() if other != link)
            if mean > times * others:
                yield SlowLink(link, mean, others, latencies[link].requests)
