"""The ancestors that may name a process: a few generations of the same user, container and pid namespace."""

from __future__ import annotations

import os

from .containers import container_id, pod_uid
from .process_info import ProcessInfo, kernel_info, user_of

MAX_GENERATIONS = 4


def find_ancestors(pid: int) -> list[ProcessInfo]:
    """Return what the kernel knows of the ancestors of a process, the nearest first, up to the first that is foreign."""
    found: list[ProcessInfo] = []
    child = kernel_info(pid)
    place = _place(child)
    while len(found) < MAX_GENERATIONS and child.parent_pid and child.parent_pid != os.getpid():
        parent = kernel_info(child.parent_pid)
        # A number that was given out again is a later process's.
        is_older = parent.start_ticks is not None and parent.start_ticks <= (child.start_ticks or 0)
        if not is_older or place is None or _place(parent) != place:
            break
        found.append(parent)
        child = parent
    return found


def _place(info: ProcessInfo) -> tuple[object, ...] | None:
    """Return the user of a process and where it runs; None where that is not known."""
    try:
        namespace = os.stat(f"/proc/{info.pid}/ns/pid").st_ino
    except OSError:
        return None
    if info.user is None:
        return None
    # Its real user started it; its effective one may be another's.
    return info.user, user_of(info.pid), namespace, container_id(info.cgroups), pod_uid(info.cgroups)
