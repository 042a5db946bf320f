"""How did Rust spell names before `_R…`? As C++ does, with `$LT$` and the like for what C++ has no letters for.

The last part is a hash of 64 bits, by which such a name is recognised, and which is left out of the source form.
"""

from __future__ import annotations

import re

_WHOLE = re.compile(r"_ZN(?P<parts>.+)17h[0-9a-f]{16}E(?P<rest>\..*)?", re.DOTALL)
_ESCAPE = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$")
_WORDS = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}


def demangle_legacy(name: str) -> str | None:
    """Return the source form; None for a name that is not of that kind."""
    whole = _WHOLE.fullmatch(name)
    if whole is None:
        return None
    parts, at, text = [], 0, whole["parts"]
    while at < len(text):
        length = re.compile(r"\d{1,4}").match(text, at)
        if length is None:
            return None
        at = length.end() + int(length[0])
        part = text[length.end() : at]
        if not part or at > len(text):
            return None
        parts.append(_plain(part))
    rest = whole["rest"] or ""
    return "::".join(parts) + ("" if rest.startswith(".llvm.") else rest)


def _plain(part: str) -> str:
    part = part[1:] if part.startswith("_$") else part
    return _ESCAPE.sub(_letter, part.replace("..", "::"))


def _letter(match: re.Match[str]) -> str:
    code = match[1]
    if code in _WORDS:
        return _WORDS[code]
    point = int(code[1:], 16)
    # A control character, or what is none, would only garble what is shown.
    return chr(point) if point <= 0x10FFFF and chr(point).isprintable() else match[0]
