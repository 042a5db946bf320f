"""How do profiles look as folded stacks? A line each: `root;caller;leaf value`, what flame graph tools read."""

from __future__ import annotations

from collections.abc import Sequence

from ..signals.profiles import Frame, FrameKind, Profile
from .frame_names import distinct_process_names, label

_ANNOTATIONS = {FrameKind.KERNEL: "_[k]"}
"""Suffixes that flamegraph.pl and its kin colour by."""


def encode_folded(profiles: Sequence[Profile]) -> str:
    """Fold profiles of one type; processes, when there are several, become the outermost frame."""
    return "".join(f"{stack} {value}\n" for stack, value in _fold(profiles).items() if value)


def encode_folded_difference(before: Sequence[Profile], after: Sequence[Profile]) -> str:
    """Fold two recordings into `stack before after` lines, as difffolded.pl does."""
    old, new = _fold(before), _fold(after)
    return "".join(f"{stack} {old.get(stack, 0)} {new.get(stack, 0)}\n" for stack in {**new, **old})


def _fold(profiles: Sequence[Profile]) -> dict[str, int]:
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
                    name = names_of_frames[frame] = _escape(label(frame)) + _ANNOTATIONS.get(frame.kind, "")
                parts.append(name)
            line = ";".join(parts) or "[no stack]"
            folded[line] = folded.get(line, 0) + sample.value
    return folded


def _escape(name: str) -> str:
    """Replace the separator; names are printable already, so that they hold no line break."""
    return name.replace(";", ":")
