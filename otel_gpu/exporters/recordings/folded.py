"""How do profiles look as folded stacks? A line each: `root;caller;leaf value`, what flame graph tools read and write.

What is read of them has names alone, or also files and lines where frames are written as py-spy does, `function (file:line)`; of
what type the values are is for the reader to say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from ...signals.frame_names import clean, distinct_process_names, file_name, kind_of, label
from ...signals.metrics import Resource
from ...signals.profiles import FileMapping, Frame, FrameKind, Profile, ProfileBuilder, ProfileType
from .tables import FrameBudget

UNKNOWN = ProfileType(
    "unknown", "count", "unknown", "count", 1, "Folded stacks", "Values of which their file does not say what they are."
)
_NO_STACK = "[no stack]"
_LINE = re.compile(r"(.+?)\s+(-?[0-9]{1,18})(?:\.[0-9]*)?")
_WITH_PLACE = re.compile(r"(.+) \(([^():]+)(?::([0-9]{1,9}))?\)")
_TWO_VALUES = re.compile(r".+\s[0-9]+\s+[0-9]+")

_ANNOTATIONS = {FrameKind.KERNEL: "_[k]"}
"""Suffixes that flamegraph.pl and its kin colour by."""


def encode_folded(profiles: Sequence[Profile], *, lines: bool = False) -> str:
    """Fold profiles of one type; processes, when there are several, become the outermost frame.

    With `lines` a frame is `function (file:line)`, and what of it is known; else a function's lines are one.
    """
    return "".join(f"{stack} {value}\n" for stack, value in _fold(profiles, lines=lines).items() if value)


def encode_folded_difference(before: Sequence[Profile], after: Sequence[Profile]) -> str:
    """Fold two recordings into `stack before after` lines, as difffolded.pl does."""
    old, new = _fold(before), _fold(after)
    return "".join(f"{stack} {old.get(stack, 0)} {new.get(stack, 0)}\n" for stack in {**new, **old})


def decode_folded(data: bytes, type: ProfileType) -> list[Profile]:
    """Return the profile of folded stacks; what is below a unit is left out of values."""
    lines = [line for line in data.decode("utf-8", "replace").split("\n") if line.strip() and not line.startswith("# ")]
    if lines and all(map(_TWO_VALUES.fullmatch, map(str.strip, lines))):
        raise ValueError("it compares two recordings: each line has two values")
    builder, budget = ProfileBuilder(type, Resource(()), 0), FrameBudget()
    frames: dict[str, Frame] = {}
    for line in lines:
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise ValueError(f"a line without a value: {line[:60]!r}")
        names = [] if found[1] == _NO_STACK else found[1].split(";")
        budget.spend(len(names))
        stack = tuple(frames.get(name) or frames.setdefault(name, _frame(name)) for name in reversed(names))
        builder.add(stack, int(found[2]))
    return [builder.build(0)]


def _frame(name: str) -> Frame:
    for kind, annotation in _ANNOTATIONS.items():
        if name.endswith(annotation):
            return Frame(kind, name.removesuffix(annotation))
    placed = _WITH_PLACE.fullmatch(name)
    if placed is None:
        return Frame(kind_of(name), name)
    if placed[3] is None:
        return Frame(FrameKind.NATIVE, placed[1], mapping=FileMapping(placed[2]))
    return Frame(kind_of(placed[1]), placed[1], placed[2], int(placed[3]))


def _with_place(frame: Frame) -> str:
    name = label(frame)
    if frame.filename:
        file = clean(PurePosixPath(frame.filename).name or frame.filename)
        return f"{name} ({file}:{frame.line})" if frame.line > 0 else f"{name} ({file})"
    if frame.mapping is not None and frame.mapping.path:
        return f"{name} ({file_name(frame.mapping)})"
    return name


def _fold(profiles: Sequence[Profile], *, lines: bool = False) -> dict[str, int]:
    names = distinct_process_names(list(profiles))
    names_of_frames: dict[Frame, str] = {}
    folded: dict[str, int] = {}
    for profile in profiles:
        outermost = [_escape(names[profile.resource])] if len(names) > 1 else []
        for sample in profile.samples:
            parts = outermost.copy()
            for frame in reversed(sample.stack):
                name = names_of_frames.get(frame)
                if name is None:
                    name = names_of_frames[frame] = _escape(
                        (_with_place if lines else label)(frame)
                    ) + _ANNOTATIONS.get(frame.kind, "")
                parts.append(name)
            line = ";".join(parts) or _NO_STACK
            folded[line] = folded.get(line, 0) + sample.value
    return folded


def _escape(name: str) -> str:
    """Replace the separator; names are printable already, so that they hold no line break."""
    return name.replace(";", ":")
