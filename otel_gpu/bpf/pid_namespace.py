"""The pid namespace by which BPF programs and this process number processes alike."""

from __future__ import annotations

import os

_OWN = "/proc/self/ns/pid"
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h: the namespace in which every process can be seen."""


def is_first_pid_namespace() -> bool:
    """Say whether this process sees those of the whole host; OSError where that cannot be told."""
    return os.stat(_OWN).st_ino == _FIRST_PID_NAMESPACE


def pid_namespace() -> dict[str, int]:
    """Return the programs' variables that say which pid namespace this process numbers processes in."""
    namespace = os.stat(_OWN)
    if namespace.st_ino == _FIRST_PID_NAMESPACE:
        return {"pidns_dev": 0, "pidns_ino": 0}
    return {"pidns_dev": namespace.st_dev, "pidns_ino": namespace.st_ino}
