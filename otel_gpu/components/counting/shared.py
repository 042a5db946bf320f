"""What does the receiver that counts in the kernel share with others? Tables, names of kernels, and when programs end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from ...bpf.link_mode import LinkMode
from ...bpf.maps import BpfMap
from ...bpf.tracepoints import TracepointLinks
from ...discovery.processes import Process
from ...probes.sites import SiteRules
from .device_time import DeviceTime
from .programs import Programs

REQUEST_TABLES = (
    "followed",
    "requests",
    "connections",
    "request_threads",
    "python_contexts",
    "python_callbacks",
    "no_owners",
    "going_on",
    "engines",
    "steps",
    "span_sources",
    "decided_holders",
)
"""Where those look who charge work to requests; without rows where no requests are followed. Every object that has one shares it."""
REQUEST_RINGS = ("engine_events",)
REQUEST_MAPS = (*REQUEST_TABLES, *REQUEST_RINGS, "programs", "used_by_all", "events", "losses", "obi_map")
"""What the programs which follow requests take from those that count."""


class StackTables(NamedTuple):
    """What the programs which take stacks share with those that count: maps, by their names."""

    capturing: BpfMap
    """Capturing streams."""
    busy: BpfMap
    """Devices' work."""
    threads: BpfMap
    """Which device each works on."""
    submitted: BpfMap
    """Programs that go on where work was submitted."""
    programs: BpfMap
    """What each program has in the tables,"""
    used_by_all: BpfMap
    """and all have together."""
    events: BpfMap
    """Where programs show themselves."""
    targets: BpfMap
    """The only processes that are observed, unless all are."""
    kernel: Programs
    ends: TracepointLinks
    """What says that a program has ended: the last to hear of it."""


class RequestTables(NamedTuple):
    """What the programs which follow requests share with those that count."""

    maps: Mapping[str, BpfMap]
    """By their names."""
    kernel: Programs


class Counting(Protocol):
    """What counts in the kernel, as other receivers know it."""

    rules: SiteRules
    """Where probes may go."""
    link: LinkMode
    """How they are placed."""

    @property
    def tables(self) -> StackTables:
        """What programs of another object may use."""

    @property
    def request_tables(self) -> RequestTables:
        """Likewise, of those that follow requests."""

    def kernel_name(self, process: Process, handle: int) -> str:
        """Return a kernel's name, or its handle where the name is not known."""

    def take_busy(self) -> Mapping[Process, Mapping[int, DeviceTime]]:
        """Return what GPUs did for each process since the last call, by device, as of the last read."""

    def before_forgetting(self, tell: Callable[[Collection[Process]], None]) -> None:
        """Tell whoever else knows of processes of those that have ended, while their kernels still have names."""
