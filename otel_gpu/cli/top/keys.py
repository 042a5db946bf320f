"""Which key was pressed? A terminal that hands over each one at once, and is put back as it was."""

from __future__ import annotations

import codecs
import os
import select
import termios
import tty
from collections.abc import Iterator
from types import TracebackType

_SEQUENCES = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "[H": "home",
    "[F": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "page up",
    "[6~": "page down",
    "[Z": "back tab",
    "OA": "up",
    "OB": "down",
    "OC": "right",
    "OD": "left",
    "OH": "home",
    "OF": "end",
}
_CONTROLS = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "delete",
    "\x08": "delete",
    "\x0c": "redraw",
    "\x15": "clear",
}
_SEQUENCE_S = 0.05
"""How long the rest of a sequence is waited for: what comes alone is the key Escape."""
_PORTION = 1024


class Keyboard:
    """The keys of a terminal. A context manager."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._before: list[object] = termios.tcgetattr(descriptor)

    def __enter__(self) -> Keyboard:
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def wait(self, timeout_s: float) -> list[str]:
        """Return the keys that are pressed until then, as soon as there are any; OSError where the terminal is gone."""
        if not self._is_ready(timeout_s):
            return []
        text = self._read()
        while text.endswith(("\x1b", "\x1b[", "\x1bO")) or (text[-3:-1] == "\x1b[" and text[-1].isdigit()):
            if not self._is_ready(_SEQUENCE_S):
                break
            text += self._read()
        return list(_keys(text))

    def _is_ready(self, timeout_s: float) -> bool:
        return bool(select.select([self._descriptor], [], [], max(timeout_s, 0.0))[0])

    def _read(self) -> str:
        data = os.read(self._descriptor, _PORTION)
        if not data:
            raise OSError(0, "the terminal is gone")
        return self._decoder.decode(data)


def _keys(text: str) -> Iterator[str]:
    """Yield the names of keys, or the letters that they stand for."""
    at = 0
    while at < len(text):
        if text[at] != "\x1b":
            letter = text[at]
            at += 1
            if letter in _CONTROLS or letter.isprintable():
                yield _CONTROLS.get(letter, letter)
            continue
        sequence = next((s for s in _SEQUENCES if text.startswith(s, at + 1)), None)
        if sequence is not None:
            yield _SEQUENCES[sequence]
            at += 1 + len(sequence)
        elif at + 1 < len(text) and text[at + 1] in "[O":
            # One that stands for no key here: up to its last letter.
            at += 2
            while at < len(text) and not text[at].isalpha() and text[at] != "~":
                at += 1
            at += 1
        else:
            yield "escape"
            at += 1
