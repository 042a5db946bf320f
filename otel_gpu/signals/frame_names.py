"""How is a frame written for a reader? Labels that are never empty or blank, bounded and printable.

Names come from the observed processes, so they may hold anything: control characters, lone surrogates,
markup, 64 KiB of template arguments. Every format goes through here.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from .metrics import Resource, attributes
from .profiles import FileMapping, Frame, FrameKind, Profile

_UNKNOWN = "[unknown]"
MAX_NAME = 4096
"""Characters kept of a name: longer than any real C++ symbol that a reader would read to its end."""


def clean(text: str, limit: int = MAX_NAME) -> str:
    """Return the text with everything unprintable replaced, cut in its middle to at most `limit` characters."""
    if len(text) > limit:
        head = (limit - 1) // 2
        text = text[:head] + "…" + text[len(text) - (limit - 1 - head) :]
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "�" for c in text)


def label(frame: Frame) -> str:
    """Return what to call a frame: its function, else `library.so+0x1234`, else the bare address."""
    if frame.function and not frame.function.isspace():
        return clean(frame.function)
    if frame.mapping is not None and frame.mapping.path:
        return f"{file_name(frame.mapping)}+{frame.address:#x}"
    return f"{frame.address:#x}" if frame.address else _UNKNOWN


def kind_of(label: str) -> FrameKind:
    """Return the kind of a frame of which only the label is known: code of a file, unless it is in brackets."""
    if label.startswith("[truncated: "):
        return FrameKind.TRUNCATED
    is_word = label.startswith("[") and label.endswith("]") and label != _UNKNOWN
    return FrameKind.MARKER if is_word else FrameKind.NATIVE


def file_name(mapping: FileMapping) -> str:
    """Return the last part of a mapping's path."""
    return clean(PurePosixPath(mapping.path).name or mapping.path)


def process_name(resource: Resource) -> str:
    """Return what to call a process: its service or executable, and its pid."""
    known = dict(resource.attributes)
    name = known.get("service.name") or known.get("process.executable.name") or "process"
    pid = known.get("process.pid")
    return clean(f"{name} ({pid})" if pid is not None else str(name))


def resource_of(process: str) -> Resource:
    """Return what the name of a process says of it."""
    named = re.fullmatch(r"(.*) \(([0-9]{1,9})\)", process)
    if named is None:
        return Resource(attributes({"service.name": process} if process else {}))
    return Resource(attributes({"service.name": named[1], "process.pid": int(named[2])}))


def distinct_process_names(profiles: list[Profile]) -> dict[Resource, str]:
    """Return a name for each resource; equal ones are told apart by a number."""
    names: dict[Resource, str] = {}
    taken: dict[str, int] = {}
    for profile in profiles:
        if profile.resource in names:
            continue
        name = process_name(profile.resource)
        taken[name] = taken.get(name, 0) + 1
        names[profile.resource] = name if taken[name] == 1 else f"{name} #{taken[name]}"
    return names
