"""Which code did the most of what a profile counts? The sites that called, largest first, for a reader in a hurry."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from pathlib import PurePosixPath

from ...signals.frame_names import clean, label
from ...signals.profiles import Frame, FrameKind, Profile, Stack, is_by_rate
from ...signals.structs import Frozen

_MAX_NAME = 120
_UNKNOWN = "code that is not known"
_DRIVERS = ("libcuda.", "libcudart.", "libamdhip64.", "libhsa-runtime64.")
"""How the names of libraries begin through which everything is called."""


class CallSite(Frozen):
    """Code that called, and how much of the profile it brought about."""

    name: str
    value: int
    share: float
    """Of the total, 0 to 1."""


def top_call_sites(profiles: Iterable[Profile], most: int = 5) -> tuple[int, list[CallSite]]:
    """Return the total of profiles of one type, and its largest call sites, of so many at most.

    A call site is the innermost Python line of a stack that could be read; where there is none, the innermost native function with a name,
    outside of the driver and the runtime if there is such a one.
    """
    values = _by_site(profiles)
    total = sum(values.values())
    largest = heapq.nlargest(most, values.items(), key=lambda item: item[1])
    return total, [CallSite(name, value, value / total if total else 0.0) for name, value in largest]


class Change(Frozen):
    """How much more, or less, a call site brought about."""

    name: str
    before: float
    after: float

    @property
    def grown(self) -> float:
        """Return by how much; negative where it became less."""
        return self.after - self.before


class Changes(Frozen):
    """How two recordings of one type differ."""

    total: Change
    sites: list[Change]
    """Those that changed the most, largest first."""
    per_second: bool
    """Values are those of a second, since one recording took longer."""


def top_changes(before: Profile | None, after: Profile | None, most: int = 5) -> Changes:
    """Return how the call sites of one recording differ from those of another."""
    by_rate = is_by_rate(before, after)
    columns = [
        {} if profile is None else _scaled(_by_site([profile]), 1e9 / profile.duration_ns if by_rate else 1)
        for profile in (before, after)
    ]
    old, new = columns
    changes = [Change(name, old.get(name, 0), new.get(name, 0)) for name in {**new, **old}]
    largest = heapq.nlargest(most, (c for c in changes if c.grown), key=lambda c: abs(c.grown))
    return Changes(Change("", sum(old.values()), sum(new.values())), largest, by_rate)


def _scaled(values: dict[str, int], by: float) -> dict[str, float]:
    return {name: value * by for name, value in values.items()}


def _by_site(profiles: Iterable[Profile]) -> dict[str, int]:
    values: dict[str, int] = {}
    names: dict[Frame | None, str] = {}
    for profile in profiles:
        for sample in profile.samples:
            site = _site(sample.stack)
            name = names.get(site) or names.setdefault(site, _name(site))
            values[name] = values.get(name, 0) + sample.value
    return values


def _site(stack: Stack) -> Frame | None:
    """Return the frame that a reader would look for first; a stack begins with its leaf."""
    native = None
    for frame in stack:
        if frame.line and _is_python(frame):
            return frame
        if frame.kind is FrameKind.NATIVE and frame.function and (native is None or _is_drivers(native)):
            native = frame
    return native or next((f for f in stack if not f.kind.is_code), None)


def _is_python(frame: Frame) -> bool:
    # Formats without kinds of frames say it by the file's name.
    return frame.kind is FrameKind.CPYTHON or frame.filename.endswith(".py")


def _is_drivers(frame: Frame) -> bool:
    return frame.mapping is not None and PurePosixPath(frame.mapping.path).name.startswith(_DRIVERS)


def _name(frame: Frame | None) -> str:
    if frame is None:
        return _UNKNOWN
    where = ""
    if frame.filename:
        where = f" ({clean(PurePosixPath(frame.filename).name)}{f':{frame.line}' if frame.line else ''})"
    elif frame.mapping is not None and frame.mapping.path:
        where = f" ({clean(PurePosixPath(frame.mapping.path).name)})"
    return clean(label(frame) + where, _MAX_NAME)
