"""Who is a program that showed itself? What the kernel read of it then, as a `ProcessInfo`."""

from __future__ import annotations

import os

from ...bpf.abi.identity import IDENTITY, IDENTITY_ARGUMENTS, IDENTITY_ENVIRONMENT
from ...bpf.records import struct_of
from ...discovery.process_info import VARIABLES, ProcessInfo, Unread
from ...signals.structs import Frozen

_IDENTITY = struct_of(IDENTITY)


class Announced(Frozen):
    """What is known of a program, and whether that is all that /proc would say of it."""

    info: ProcessInfo
    is_whole: bool


def read(pid: int, parent: int, record: bytes, *, has_path: bool) -> Announced:
    """Read struct identity of ebpf/abi/; what does not fit there, or was not readable, is not known.

    Without a path there is the executable's own name, and nothing of control groups.
    """
    comm, path_bytes, groups_bytes, arguments_bytes, environment_bytes, path, groups, arguments, environment = (
        _IDENTITY.unpack_from(record)
    )
    names = _names(path, path_bytes)
    text = os.fsdecode(comm.split(b"\0", 1)[0])
    said = arguments[: min(arguments_bytes, IDENTITY_ARGUMENTS)]
    variables = environment[: min(environment_bytes, IDENTITY_ENVIRONMENT)]
    fits = arguments_bytes <= IDENTITY_ARGUMENTS and environment_bytes <= IDENTITY_ENVIRONMENT
    is_read = fits and any(said) and (any(variables) or not variables)
    info = ProcessInfo(
        pid,
        parent or None,
        os.fsdecode(names[0]) if names and not has_path else text,
        _path(names) if names and has_path else "",
        tuple(os.fsdecode(a) for a in said.split(b"\0")[:-1]) if any(said) else (),
        tuple(_variables(variables, is_cut=environment_bytes > IDENTITY_ENVIRONMENT)),
        (f"0::{_path(_names(groups, groups_bytes))}",) if has_path else (),
        None if is_read else Unread.ENDED,
    )
    return Announced(info, has_path and is_read)


def _names(text: bytes, size: int) -> list[bytes]:
    """Return names that each end with NUL, the lowest first."""
    return text[: min(size, len(text))].split(b"\0")[:-1]


def _path(names: list[bytes]) -> str:
    return "/" + os.fsdecode(b"/".join(reversed(names)))


def _variables(block: bytes, *, is_cut: bool) -> list[tuple[str, str]]:
    entries = block.split(b"\0")
    if is_cut:
        entries.pop()
    found = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if equals and (key := os.fsdecode(name)) in VARIABLES:
            found[key] = os.fsdecode(value)
    return list(found.items())
