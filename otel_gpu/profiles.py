"""What can a program do with profiles? Read and write them in every format, add them up, and tell how two differ.

    from otel_gpu import profiles

    before, after = profiles.read("monday.pb.gz"), profiles.read("tuesday.pb.gz")
    profiles.write(profiles.diff(before, after), "difference.otlp.json")

Profiles are frozen values: `Profile.samples` are stacks with how much happened there, in the unit of `Profile.type`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from .signals.profiles import (
    PROFILE_TYPES,
    FileMapping,
    Frame,
    FrameKind,
    Profile,
    ProfileBuilder,
    ProfileType,
    Sample,
    SpanLink,
    Stack,
    counterparts,
    difference,
    merge,
)

__all__ = [
    "PROFILE_TYPES",
    "FileMapping",
    "Frame",
    "FrameKind",
    "Profile",
    "ProfileBuilder",
    "ProfileType",
    "Sample",
    "SpanLink",
    "Stack",
    "diff",
    "merge",
    "read",
    "write",
]


def read(path: str | os.PathLike[str], type: ProfileType | None = None) -> list[Profile]:
    """Return the profiles of a file in any format that `write` knows, or of an agent's `profiles.jsonl`.

    A picture (`.svg`) is not read. Each format has room for less than the one before: `.otlp.json` and `profiles.jsonl` hold everything, `.pb.gz` no
    resources, `.html` no lines and addresses, `.json` (speedscope) no kinds of frames either, `.folded` names alone. `type` is
    what folded stacks are of, which do not say it. ConfigError where a file is none of these, cannot be read, or holds
    something else than its name says.
    """
    from .exporters.recordings.reading import read_profiles

    return read_profiles(path, type)


def write(profiles: Profile | Iterable[Profile], path: str | os.PathLike[str]) -> tuple[ProfileType, ...]:
    """Write profiles to a file, whole or not at all; return the types that its format has no room for.

    The suffix chooses the format: `.pb.gz` pprof, `.html` flame graph, `.svg` the same as a picture, `.folded` (one type),
    `.json` speedscope, `.otlp.json`. ConfigError for another one, OtelGpuError where the file cannot be written.
    """
    from .exporters.recordings.files import write_profile

    return write_profile([profiles] if isinstance(profiles, Profile) else list(profiles), path)


def diff(before: Iterable[Profile], after: Iterable[Profile]) -> list[Profile]:
    """Return what was added from one recording to another, stack by stack; values are negative where it became less.

    Profiles are compared by type and resource, or by type alone where each recording is of one process. What only one
    of them has is compared to nothing. Of frames that is compared which both recordings say of theirs, so that a stack that
    was read from pprof is the same as that from speedscope.
    """
    from .exporters.recordings.comparison import comparable

    return [difference(*pair) for pair in counterparts(*comparable(before, after))]
