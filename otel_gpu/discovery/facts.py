"""What is known of a process that can tell who it is? Read from /proc here; the kernel's own events know it as well."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..errors import ProcessGoneError
from . import procfs

VARIABLES = frozenset({"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"})
"""The environment variables in which a process says who it is."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One program run by one process, as found: nothing here is checked, shortened or escaped yet.

    What is not known is empty. Bytes that are no UTF-8 are kept as `os.fsdecode` keeps them.
    """

    pid: int
    parent_pid: int | None = None
    comm: str = ""
    executable: str = ""
    """The program's path, as the process sees it."""
    arguments: tuple[str, ...] = ()
    """The command line, program first."""
    variables: tuple[tuple[str, str], ...] = ()
    """Those of `VARIABLES` that stand in the environment it was started with."""
    cgroups: tuple[str, ...] = ()
    """The lines of /proc/PID/cgroup."""


def read_facts(pid: int) -> ProcessFacts:
    """Return what /proc tells of a process; of one that is gone, or may not be looked at, only what it still tells."""
    parent_pid, comm = None, ""
    arguments: list[str] = []
    variables: dict[str, str] = {}
    cgroups = b""
    try:
        status = procfs.stat(pid)
        parent_pid, comm = status.parent, status.comm
        arguments = procfs.command_line(pid)
        cgroups = procfs.read(pid, "cgroup")
        # Last: another user's environment is what may be refused.
        variables = procfs.environment(pid, VARIABLES)
    except (ProcessGoneError, OSError):
        pass
    return ProcessFacts(
        pid,
        parent_pid,
        comm,
        procfs.executable(pid) or "",
        tuple(arguments),
        tuple(variables.items()),
        tuple(os.fsdecode(cgroups).splitlines()),
    )
