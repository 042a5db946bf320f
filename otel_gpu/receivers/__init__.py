"""What was observed? Each receiver turns what it reads of the kernel, or of a library, into measurements, spans or profiles."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..signals.metrics import Measurement, SelfReading
from ..supervision import Health

if TYPE_CHECKING:
    from ..discovery.libraries import Library
    from ..process.files import File
    from ..signals.profiles import Profile
    from ..signals.spans import Span

__all__ = [
    "GivesMetrics",
    "GivesProfiles",
    "GivesSpans",
    "LibraryReceiver",
    "Receiver",
    "SelfMeasuring",
    "Supervised",
]


class Receiver(Protocol):
    """What the agent asks of every receiver, beside the method of each signal that its factory names."""

    def close(self) -> None:
        """Release everything; idempotent."""


@runtime_checkable
class GivesMetrics(Protocol):
    """A receiver of metrics."""

    def collect(self) -> list[Measurement]:
        """Return what was measured since the last call."""


@runtime_checkable
class GivesSpans(Protocol):
    """A receiver of traces."""

    def spans(self, *, last: bool = False) -> list[Span]:
        """Return the spans that ended since the last call; with `last`, also those that have not, marked as cut."""


@runtime_checkable
class GivesProfiles(Protocol):
    """A receiver of profiles."""

    def profiles(self, *, last: bool = False) -> list[Profile]:
        """Return what was sampled since the last call, one profile a process and type; with `last`, all that there is."""


@runtime_checkable
class Supervised(Protocol):
    """A part that says how it is."""

    def health(self) -> Iterable[Health]:
        """Say of everything within whether it does its work."""


@runtime_checkable
class SelfMeasuring(Protocol):
    """A part that measures itself."""

    def readings(self) -> Iterable[SelfReading]:
        """Yield what it measured of itself: of counters the total since the start."""


@runtime_checkable
class Preparing(Protocol):
    """A receiver that begins to read before others are read."""

    def prepare(self) -> None:
        """Begin to read what `collect` will return."""


class LibraryReceiver:
    """A receiver that places probes in libraries which processes map. Called by several threads at once."""

    def installed(self) -> Iterable[tuple[Library, File, str]]:
        """Return libraries of this host to attach to before any process has mapped them, and each one's path."""
        return ()

    def observe(self, pid: int) -> None:
        """Look at a process that has mapped code; again after it mapped more."""

    def attach(self, _library: Library, _file: File) -> int | None:
        """Place probes in a library, once; return when they were in place, by the monotonic clock, if there are any."""
        return None

    def detach(self, library: Library) -> None:
        """Take the probes out of a library that nobody uses any more."""

    def retry(self) -> None:
        """Place probes for which there were too few descriptors, or too little memory, where there is room now."""

    def place_no_more(self) -> None:
        """Place no further probes, without a wait; those that are in place still count."""

    def hurry(self, timeout_s: float) -> None:
        """Have what is being collected wait no longer than that."""

    def settle(self, timeout_s: float) -> None:
        """Wait for what is still looked up a last time: from now on nothing is waited for, or held back."""

    def is_ready(self, _pids: Collection[int]) -> bool:
        """Say whether all that a first look needs of these processes has been read."""
        return True

    def detach_all(self) -> None:
        """Take away the probes, and leave everything else to a thread that may still use it; idempotent."""
