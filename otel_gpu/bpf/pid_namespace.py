"""The pid namespace by which BPF programs and this process number processes alike."""

from __future__ import annotations

import os

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO, include/linux/proc_ns.h."""


def pid_namespace() -> dict[str, int]:
    """Return the programs' variables that say which pid namespace this process numbers processes in."""
    namespace = os.stat("/proc/self/ns/pid")
    if namespace.st_ino == _INITIAL_PID_NAMESPACE:
        return {"pidns_dev": 0, "pidns_ino": 0}
    return {"pidns_dev": namespace.st_dev, "pidns_ino": namespace.st_ino}
