"""How large may the kernel's tables be, where a control group limits what this process takes? They count as its own memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

_log = logging.getLogger(__name__)

_MB = 1_000_000
_COUNTING, _COUNTING_TABLES = 130 * _MB, 90 * _MB
_PROFILING, _PROFILING_TABLES = 60 * _MB, 160 * _MB
_FOLLOWING, _FOLLOWING_TABLES = 10 * _MB, 40 * _MB
"""What the agent and its children take, and what the tables do with what loading them takes for a moment; what profiles and
requests take beyond that. `python -m bench.memory` measures both."""
SMALLEST = 1 / 32
_UNLIMITED = 1 << 62
"""cgroup v1 says so of no limit; a page less or more, by the kernel."""


def table_share(*, profiles: bool, requests: bool = False, root: Path = Path("/")) -> float:
    """Return which part of their usual size the tables are to have, so that all fits into the limit found: a power of 1/2."""
    limit = limit_bytes(root)
    if limit is None:
        return 1.0
    own = _COUNTING + (_PROFILING if profiles else 0) + (_FOLLOWING if requests else 0)
    tables = _COUNTING_TABLES + (_PROFILING_TABLES if profiles else 0) + (_FOLLOWING_TABLES if requests else 0)
    share = 1.0
    while share > SMALLEST and own + tables * share > limit:
        share /= 2
    if own + tables * share > limit:
        _log.warning(
            "the control group of this process allows %d MB, and %d MB are needed, %d MB to observe many programs: the kernel "
            "may end it; raise the limit (MemoryMax, resources.limits.memory)",
            limit // _MB,
            (own + tables * share) // _MB,
            (own + tables) // _MB,
        )
    elif share < 1:
        _log.warning(
            "tables have 1/%d of their usual size, as the control group of this process allows %d MB: with %d MB they have "
            "all of it (MemoryMax, resources.limits.memory)",
            round(1 / share),
            limit // _MB,
            (own + tables) // _MB,
        )
    return share


def limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the lowest limit of memory of the control groups that this process is in; None where there is none."""
    limits = [limit for file in _limit_files(root) if (limit := _limit(file)) is not None]
    return min(limits, default=None)


def _limit_files(root: Path) -> Iterator[Path]:
    """Yield where a limit may stand: in the process's control group, and in those that it lies in."""
    for mount, below, name, group in _hierarchies(root):
        # Of the path that the kernel tells, only what lies below the mount can be seen from here.
        inside = group[len(below) :] if group == below or group.startswith(f"{below.rstrip('/')}/") else "/"
        place = root / mount.lstrip("/")
        parts = [part for part in inside.split("/") if part and part != ".."]
        for depth in range(len(parts), -1, -1):
            yield place.joinpath(*parts[:depth]) / name


def _hierarchies(root: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield mount point, the mounted root, the name of the limit's file, and the process's group, for cgroup v1 and v2."""
    groups = {}
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            groups["cgroup2"] = path
        elif "memory" in controllers.split(","):
            groups["cgroup"] = path
    for line in _lines(root / "proc/self/mountinfo"):
        fields, _, rest = line.partition(" - ")
        place, kind = fields.split(), rest.split()
        if len(place) < 5 or not kind or kind[0] not in groups:
            continue
        if kind[0] == "cgroup2":
            yield place[4], place[3], "memory.max", groups["cgroup2"]
        elif "memory" in kind[-1].split(","):
            yield place[4], place[3], "memory.limit_in_bytes", groups["cgroup"]


def _limit(file: Path) -> int | None:
    """Return what a file says; None where it says nothing, or that there is no limit."""
    text = next(iter(_lines(file)), "").strip()
    limit = int(text) if text.isdigit() else _UNLIMITED
    return limit if limit < _UNLIMITED else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
