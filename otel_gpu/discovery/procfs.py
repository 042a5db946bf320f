"""What does /proc say of a process? Bounded reads; a vanished process is a ProcessGoneError."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..errors import ProcessGoneError
from ..signals.structs import Frozen

_MAX_FILE = 1 << 20
_DELETED = " (deleted)"


def pids() -> Iterator[int]:
    """Yield every process id."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def read(pid: int, name: str, limit: int = _MAX_FILE) -> bytes:
    """Return a file of /proc/PID, at most `limit` bytes; ProcessGoneError where the process is gone."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as f:
            return f.read(limit)
    except (FileNotFoundError, ProcessLookupError) as e:
        raise ProcessGoneError(f"process {pid} is gone") from e


class Stat(Frozen):
    """The parts of /proc/PID/stat that identify a process."""

    comm: str
    state: str
    parent: int
    start_ticks: int
    """Clock ticks after boot; with the pid, unique until the next boot."""
    arguments_at: int
    """Where in its memory its arguments are, anew after each exec; 0 for whom that is not to know."""


def stat(pid: int) -> Stat:
    """Return who a process is."""
    head, _, tail = read(pid, "stat").rpartition(b")")
    fields = tail.split()
    if len(fields) < 46:
        raise ProcessGoneError(f"process {pid} is gone")
    comm = head.partition(b"(")[2].decode("utf-8", "replace")
    return Stat(comm, fields[0].decode(), int(fields[1]), int(fields[19]), int(fields[45]))


def user(pid: int) -> int | None:
    """Return the real user of a process; None where that is not to know."""
    try:
        fields = dict(line.split(b":", 1) for line in read(pid, "status").splitlines() if b":" in line)
        return int(fields[b"Uid"].split()[0])
    except (ProcessGoneError, OSError, KeyError, ValueError, IndexError):
        return None


def is_alive(pid: int) -> bool:
    """Say whether any thread of a process still runs, as far as it can be known."""
    try:
        if stat(pid).state not in ("Z", "X"):
            return True
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except (ProcessGoneError, FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        # This program is out of descriptors or memory, or may not look: that says nothing of the other.
        return True


def executable(pid: int) -> str | None:
    """Return the path of the program, as the process sees it."""
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(_DELETED)
    except OSError:
        return None
