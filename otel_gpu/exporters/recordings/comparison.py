"""How are recordings compared that are of different formats? By what both of them say of a frame.

Folded stacks have names only, speedscope files and flame graphs have no addresses, and pprof files one id of a file where
OTLP has two. What one recording says of no frame at all is left out of the other's frames as well; of two that say the same
everything is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from ...signals.frame_names import file_name, kind_of, label
from ...signals.profiles import Frame, FrameKind, Profile, ProfileBuilder, merge

_NAMED_KINDS = frozenset({FrameKind.CPYTHON, FrameKind.CUDA})
"""Those that a name alone does not tell."""


class Detail(NamedTuple):
    """What the frames of a recording have."""

    kinds: bool
    files: bool
    paths: bool
    """Of files, not only their last parts."""
    lines: bool
    addresses: bool
    """And what they are addresses in: build ids and the like."""
    htlhashes: bool


def comparable(before: Iterable[Profile], after: Iterable[Profile]) -> tuple[list[Profile], list[Profile]]:
    """Return two recordings, merged, with frames that are equal where both recordings say the same of them."""
    old, new = merge(before), merge(after)
    detail, other = _detail(old), _detail(new)
    if not old or not new or detail == other:
        return old, new
    common = Detail(*map(min, detail, other))
    return [_reduced(p, common) for p in old], [_reduced(p, common) for p in new]


def _detail(profiles: Sequence[Profile]) -> Detail:
    frames = {frame for profile in profiles for sample in profile.samples for frame in sample.stack}
    mappings = {frame.mapping for frame in frames if frame.mapping is not None}
    return Detail(
        kinds=any(frame.kind in _NAMED_KINDS for frame in frames),
        files=bool(mappings) or any(frame.filename for frame in frames),
        paths=any("/" in frame.filename for frame in frames) or any("/" in mapping.path for mapping in mappings),
        lines=any(frame.line > 0 for frame in frames),
        addresses=any(frame.address for frame in frames),
        htlhashes=any(mapping.htlhash for mapping in mappings),
    )


def _reduced(profile: Profile, common: Detail) -> Profile:
    reduce = _with_addresses if common.addresses else _without_addresses
    known: dict[Frame, Frame] = {}
    builder = ProfileBuilder(profile.type, profile.resource, profile.start_ns)
    for sample in profile.samples:
        stack = tuple(_known(known, frame, common, reduce) for frame in sample.stack)
        builder.add(stack, sample.value, sample.attributes, sample.link)
    return builder.build(profile.start_ns + profile.duration_ns)


def _known(known: dict[Frame, Frame], frame: Frame, common: Detail, reduce: Callable[[Frame, Detail], Frame]) -> Frame:
    reduced = known.get(frame)
    if reduced is None:
        reduced = known[frame] = reduce(frame, common)
    return reduced


def _with_addresses(frame: Frame, common: Detail) -> Frame:
    mapping = frame.mapping
    if mapping is not None and not common.htlhashes:
        mapping = mapping._replace(build_id=mapping.build_id or mapping.htlhash, htlhash="")  # as pprof has them
    return _of_kind(frame, common)._replace(mapping=mapping)


def _without_addresses(frame: Frame, common: Detail) -> Frame:
    place = ""
    if common.files:
        place = frame.filename or (file_name(frame.mapping) if frame.mapping is not None else "")
        place = place if common.paths else PurePosixPath(place).name
    return _of_kind(frame, common)._replace(function=label(frame), filename=place, mapping=None, address=0)


def _of_kind(frame: Frame, common: Detail) -> Frame:
    kind = frame.kind if common.kinds else kind_of(label(frame))
    return frame._replace(kind=kind, line=frame.line if common.lines else 0)
