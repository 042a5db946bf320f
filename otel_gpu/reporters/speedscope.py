"""How do profiles look in speedscope? Its JSON, one sampled profile for each type and process.

The format: https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .. import __version__
from ..errors import ConfigError
from ..signals.profiles import Frame, Profile
from .frame_names import clean, distinct_process_names, file_name, label

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = {"nanoseconds": "nanoseconds", "bytes": "bytes"}


def encode_speedscope(profiles: Sequence[Profile]) -> str:
    """Encode profiles as one speedscope file; it cannot hold negative values."""
    frames: dict[tuple[str, str, int], int] = {}
    known: dict[Frame, int] = {}
    names = distinct_process_names(list(profiles))
    encoded = [_encode(p, f"{p.type.title} · {names[p.resource]}", frames, known) for p in profiles]
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
