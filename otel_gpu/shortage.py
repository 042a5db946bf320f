"""Does this process lack descriptors or memory? Maps, programs and probes are descriptors too, and live in the kernel's memory.

What fails for want of either is tried again: others may let go of some, and limits can be raised from outside.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

from .errors import OtelGpuError
from .online_cpus import online_cpus

_MOST_DESCRIPTORS = 1 << 20
"""The kernel's own limit (fs.nr_open) unless somebody changed it; some hosts say more than anybody could use."""
_CODES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
COUNTING, PROFILING = 192, 128
"""Descriptors that counting takes with one library, and spare ones for files, connections and children; that profiles
take beyond that."""


def raise_descriptor_limit() -> tuple[int, int]:
    """Take as many descriptors as this process may have without asking anybody; return the limits that were there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else _MOST_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < min(most, _MOST_DESCRIPTORS):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, _MOST_DESCRIPTORS), hard))
    return soft, hard


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def descriptors_left() -> int:
    """Return how many more files this process may open."""
    try:
        is_open = len(os.listdir("/proc/self/fd")) - 1  # without the one that lists them
    except OSError as e:
        if is_shortage(e):
            return 0
        raise
    return descriptor_limit() - is_open


def require_descriptors(*, profiles: bool) -> None:
    """Raise OtelGpuError where there are too few descriptors to observe anything."""
    needed = COUNTING + (PROFILING if profiles else 0) + (1 + profiles) * len(online_cpus())
    left = descriptors_left()
    if left < needed:
        raise OtelGpuError(
            f"this process may open {left} more files, of {descriptor_limit()} in all, and needs {needed} to observe one "
            "library; raise the limit (ulimit -n 1024, or LimitNOFILE=1024 of the service)"
        )


def is_shortage(error: BaseException) -> bool:
    """Say whether something failed for want of descriptors or memory, now or in what caused it."""
    return any(isinstance(e, MemoryError) or (isinstance(e, OSError) and e.errno in _CODES) for e in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
