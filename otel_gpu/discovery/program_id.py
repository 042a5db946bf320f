"""Which program is meant, of all that run under one pid in the course of time?"""

from __future__ import annotations

from typing import NamedTuple


class ProgramId(NamedTuple):
    """One program that a process runs, from exec to exec or exit; the kernel's tables have it as tgid and exec_id."""

    pid: int
    exec_id: int
    """Changes at every exec, and where a pid is used again: a hash of when the process began and how often it called exec."""
