"""What is a mangled name called in the source code?

C++ names (the Itanium ABI, which nvcc, gcc and clang use) and Rust's, old (the same form, with a hash) and new (`_R…`).
Rust's hashes are left out. The names come from observed programs, and a few hundred hostile bytes can stand for a name
of gigabytes: this demangler, unlike the ones in the C++ runtime and in LLVM, has a budget. What it cannot read within it
stays mangled.
"""

from __future__ import annotations

import functools
import re

from .itanium import NotMangled, Parser
from .rust_legacy import demangle_legacy
from .rust_v0 import RustParser

_MAX_MANGLED = 4_096
# A static kernel of relocatable device code: __nv_static_<length>_<module id of that length>_<name>
_NV_STATIC = re.compile(r"__nv_static_(\d{1,4})_")
_OPERATOR = re.compile(r"\boperator(\(\)|\[\]|<=>|->\*?|<<=?|>>=?|<=?|>=?|[-+*/%^&|!=~,]{1,2})")
_OPENING, _CLOSING = "<([{", ">)]}"


@functools.lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """Return the source form of a name, or the name itself where it is not mangled or not understood."""
    mangled = _without_module(name)
    if not mangled.startswith(("_Z", "_R")) or len(mangled) > _MAX_MANGLED:
        return mangled
    try:
        if mangled[1] == "R":
            return RustParser(mangled).parse()
        return demangle_legacy(mangled) or Parser(mangled).parse()
    except (NotMangled, RecursionError):
        return mangled


@functools.lru_cache(maxsize=4096)
def shorten(name: str) -> str:
    """Return a name, mangled or not, without return type, template arguments and parameters."""
    text = demangle(name)
    if text.startswith(("_Z", "_R")) or "\0" in text:  # below, a zero byte marks what is kept
        return text
    if name.startswith("_R") or demangle_legacy(name) is not None:
        return _without_generic_arguments(text)
    # Brackets in operators and in names of unnamed things are no brackets to match.
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    text = re.sub(r"\(anonymous namespace\)|\{lambda[^{}]*\}|\{unnamed[^{}]*\}|'lambda\d*'", keep, text)
    text = _OPERATOR.sub(keep, text)
    short, depth = [], 0
    for character in text:
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth = max(depth - 1, 0)
        elif depth == 0:
            short.append(character)
    words = [w for w in "".join(short).split(" ") if w not in ("const", "volatile", "&", "&&", "", "clone", "noexcept")]
    result = words[-1] if words else text
    if len(words) > 1 and words[-2].endswith("operator"):  # operator bool, operator new
        result = f"{words[-2]} {result}"
    return re.sub(r"\0(\d+)\0", lambda m: re.sub(r"\(.*\)(?=#|'?\})", "", kept[int(m[1])]), result) or name


def _without_generic_arguments(text: str) -> str:
    """Return a Rust name without `::<…>`; a `<…>` that a name begins with says whose method it is, and stays."""
    kept, depth, at = [], 0, 0
    while at < len(text):
        if depth == 0 and text.startswith("::<", at):
            depth, at = 1, at + 3
            continue
        if depth and text[at] in _OPENING:
            depth += 1
        elif depth and text[at] in _CLOSING and text[at - 1 : at + 1] != "->":
            depth -= 1
        elif not depth:
            kept.append(text[at])
        at += 1
    return "".join(kept)


def _without_module(name: str) -> str:
    match = _NV_STATIC.match(name)
    if match:
        rest = name[match.end() + int(match[1]) :]
        if rest.startswith("_") and len(rest) > 1:
            return rest[1:]
    return name
