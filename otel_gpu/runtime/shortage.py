"""Does this process lack descriptors or memory? Maps, programs and probes are descriptors too, and live in the kernel's memory.

What fails for want of either is tried again: others may let go of some, and limits can be raised from outside.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

from ..errors import OtelGpuError
from .memory_limit import limit_bytes
from .online_cpus import online_cpus

_MOST_DESCRIPTORS = 1 << 20
"""The kernel's own limit (fs.nr_open) unless somebody changed it; some hosts say more than anybody could use."""
_CODES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_FEWEST_ADDRESSES = 128 << 20
"""Bytes; with fewer NumPy's linear algebra ends the process, with a line of its own."""
_OF_ADDRESSES = {
    resource.RLIMIT_AS: "address space (ulimit -v unlimited, or LimitAS=infinity of the service)",
    resource.RLIMIT_DATA: "data (ulimit -d unlimited, or LimitDATA=infinity of the service)",
}
_NOT_MAPPED = "failed to map segment from shared object"
"""As the dynamic linker says it, and Python after it."""
_NO_THREAD = ("can't start new thread", "unable to start watchdog thread")
"""As Python says it; it does not say whether for want of memory or of tasks."""
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


def require_address_space() -> None:
    """Raise OtelGpuError where this process may have so few addresses that a library of its own would end it."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _FEWEST_ADDRESSES:
        raise OtelGpuError(
            f"this process may have {limit >> 20} MiB of address space, and needs more; {memory_advice()}"
        )


def memory_advice() -> str:
    """Return what to do where there is no memory: which limit to raise, of those that this process has."""
    for limit, advice in _OF_ADDRESSES.items():
        bytes_ = resource.getrlimit(limit)[0]
        if bytes_ != resource.RLIM_INFINITY:
            return f"raise the limit of {advice}; it is {bytes_ >> 20} MiB"
    if (of_group := limit_bytes()) is not None:
        what = "the limit of memory of the control group (MemoryMax of the service, resources.limits.memory of the pod)"
        return f"raise {what}; it is {of_group >> 20} MiB"
    return "free memory of this host"


def has_few_addresses() -> bool:
    """Say whether this process has a limit of addresses: what fails for want of them does not always say so."""
    return any(resource.getrlimit(limit)[0] != resource.RLIM_INFINITY for limit in _OF_ADDRESSES)


def is_memory_shortage(error: BaseException) -> bool:
    """Say whether something failed for want of memory or addresses, as far as it says so."""
    return any(
        isinstance(e, MemoryError)
        or (isinstance(e, OSError) and e.errno == errno.ENOMEM)
        or (isinstance(e, ImportError) and _NOT_MAPPED in str(e))
        or (isinstance(e, RuntimeError) and has_few_addresses() and str(e) in _NO_THREAD)
        for e in _causes(error)
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
