"""How is a recording that anybody may have made looked into? By indexes that are checked, up to so many frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

MAX_FRAMES = 1 << 24
"""Frames of all stacks of a file, each as often as it stands on one."""

_Entry = TypeVar("_Entry")


def entry(table: Sequence[_Entry], index: int) -> _Entry:
    """Return an entry of a table, never one counted from its end."""
    if not 0 <= index < len(table):
        raise ValueError(f"index {index} of a table of {len(table)}")
    return table[index]


class FrameBudget:
    """Says when a file's stacks have more frames than any recording has: a few bytes can ask for gigabytes."""

    def __init__(self) -> None:
        self._left = MAX_FRAMES

    def spend(self, frames: int) -> None:
        """Take so many frames more; ValueError where there are too many."""
        self._left -= frames
        if self._left < 0:
            raise ValueError(f"its stacks have more than {MAX_FRAMES} frames in all")
