"""How do profiles look in speedscope? Its JSON, one sampled profile for each type and process.

The format: https://www.speedscope.app/file-format-schema.json. What is read of it has names, files and lines; the type
and the process are told by the profile's name, if the file is one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import ConfigError
from ...signals.frame_names import clean, distinct_process_names, file_name, kind_of, label, resource_of
from ...signals.profiles import PROFILE_TYPES, Frame, Profile, ProfileBuilder, ProfileType
from ...version import __version__
from .tables import FrameBudget, entry

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = {"nanoseconds": "nanoseconds", "bytes": "bytes"}
_UNITS_READ: dict[str, tuple[str, int]] = {
    "none": ("count", 1),
    "bytes": ("bytes", 1),
    "nanoseconds": ("nanoseconds", 1),
    "microseconds": ("nanoseconds", 1_000),
    "milliseconds": ("nanoseconds", 1_000_000),
    "seconds": ("nanoseconds", 1_000_000_000),
}
"""Speedscope's units: as which unit they are read, and how many of that they are."""
_BETWEEN = " · "
"""Stands between a profile's title and its process."""


def encode_speedscope(profiles: Sequence[Profile]) -> str:
    """Encode profiles as one speedscope file; it cannot hold negative values."""
    frames: dict[tuple[str, str, int], int] = {}
    known: dict[Frame, int] = {}
    names = distinct_process_names(list(profiles))
    encoded = [_encode(p, f"{p.type.title}{_BETWEEN}{names[p.resource]}", frames, known) for p in profiles]
    document = {
        "$schema": _SCHEMA,
        "exporter": f"otel-gpu {__version__}",
        "name": ", ".join(names.values()),
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(*key) for key in frames]},
        "profiles": encoded,
    }
    return json.dumps(document, separators=(",", ":"))


def _encode(
    profile: Profile, name: str, frames: dict[tuple[str, str, int], int], known: dict[Frame, int]
) -> dict[str, Any]:
    samples: list[list[int]] = []
    weights: list[int] = []
    for sample in profile.samples:
        if sample.value < 0:
            raise ConfigError("speedscope holds no negative values; write the difference as .html or .folded")
        samples.append([_index(frame, frames, known) for frame in reversed(sample.stack)])
        weights.append(sample.value)
    return {
        "type": "sampled",
        "name": name,
        "unit": _UNITS.get(profile.type.unit, "none"),
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _index(frame: Frame, frames: dict[tuple[str, str, int], int], known: dict[Frame, int]) -> int:
    index = known.get(frame)
    if index is None:
        place = clean(frame.filename) or (file_name(frame.mapping) if frame.mapping is not None else "")
        index = known[frame] = frames.setdefault((label(frame), place, max(frame.line, 0)), len(frames))
    return index


def _frame(name: str, place: str, line: int) -> dict[str, Any]:
    frame: dict[str, Any] = {"name": name}
    if place:
        frame["file"] = place
    if line:
        frame["line"] = line
    return frame


def decode_speedscope(data: bytes) -> list[Profile]:
    """Return the profiles of a speedscope file, from whatever tool: sampled ones, or those of calls and returns."""
    document = json.loads(data)
    frames = [_read_frame(f) for f in document["shared"]["frames"]]
    budget = FrameBudget()
    profiles = []
    for encoded in document["profiles"]:
        unit, each = _UNITS_READ[encoded["unit"]]
        title, between, process = str(encoded["name"]).rpartition(_BETWEEN)
        builder = ProfileBuilder(_type(title, unit) if between else _type(process, unit), resource_of(process), 0)
        for indexes, weight in _weighted(encoded):
            budget.spend(len(indexes))
            builder.add(tuple(entry(frames, i) for i in reversed(indexes)), round(weight * each))
        profiles.append(builder.build(0))
    return profiles


def _type(title: str, unit: str) -> ProfileType:
    known = (t for t in PROFILE_TYPES.values() if t.title == title and t.unit == unit)
    return next(known, ProfileType(title, unit, title, unit, 1, title, ""))


def _read_frame(frame: dict[str, Any]) -> Frame:
    name = str(frame["name"])
    return Frame(kind_of(name), name, str(frame.get("file") or ""), int(frame.get("line") or 0))


def _weighted(encoded: dict[str, Any]) -> Iterator[tuple[Sequence[int], float]]:
    """Yield stacks, root first, with what happened there."""
    if encoded["type"] == "sampled":
        if len(encoded["samples"]) != len(encoded["weights"]):
            raise ValueError("samples without one weight for each")
        yield from zip(encoded["samples"], encoded["weights"])
        return
    stack: list[int] = []
    since = encoded["startValue"]
    for event in encoded["events"]:
        if stack and event["at"] > since:
            yield stack, event["at"] - since
        since = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        elif not stack or stack.pop() != event["frame"]:
            raise ValueError("a return from a function that was not called last")
