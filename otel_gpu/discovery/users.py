"""Which libraries are still in use? Probes keep a library's file, and so its file system, from going."""

from __future__ import annotations

import os
import threading
import time

import msgspec

from ..signals.structs import Record
from .libraries import Library
from .processes import Process

_KEPT_S = 5.0
"""How long a library stays probed that nobody uses: a program that is run again and again maps it again and again."""
_LOOK_S = 10.0
"""How often it is looked whether a kept file is still the one at its path."""


class _Use(Record):
    library: Library
    processes: set[Process] = msgspec.field(default_factory=set)
    kept_at: str | None = None
    """The path of this host at which programs will look for it; kept as long as it is there."""
    looked_at: float = 0.0
    unused_since: float | None = None


class LibraryUsers:
    """The processes that have each library mapped. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[object, _Use] = {}

    def add(self, process: Process, library: Library) -> bool:
        """Note that a process has a library mapped; False when that was known."""
        with self._lock:
            use = self._uses.setdefault(library.id, _Use(library))
            use.unused_since = None
            if process in use.processes:
                return False
            use.processes.add(process)
            return True

    def keep(self, library: Library, path: str) -> None:
        """Keep a library that programs will look for at a path, used or not."""
        with self._lock:
            self._uses.setdefault(library.id, _Use(library)).kept_at = path

    def of(self, process: Process) -> list[Library]:
        """Return the libraries that a process is known to have mapped."""
        with self._lock:
            return [use.library for use in self._uses.values() if process in use.processes]

    def take_unused(self) -> list[Library]:
        """Return, once, the libraries that nobody has used for a while."""
        now = time.monotonic()
        unused = []
        with self._lock:
            for key, use in list(self._uses.items()):
                use.processes = {p for p in use.processes if not p.ended}
                if use.kept_at is not None and now - use.looked_at > _LOOK_S:
                    use.looked_at = now
                    if not _is_at(use.library, use.kept_at):
                        use.kept_at = None
                if use.processes or use.kept_at is not None:
                    use.unused_since = None
                elif use.unused_since is None:
                    use.unused_since = now
                if use.unused_since is not None and now - use.unused_since >= _kept_s(use.library):
                    unused.append(use.library)
                    del self._uses[key]
        return unused


def _kept_s(library: Library) -> float:
    """A container's file system is taken down as soon as its last process has ended; others are mostly there to stay."""
    return _KEPT_S if os.major(library.id.device) else 0.0


def _is_at(library: Library, path: str) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (library.id.device, library.id.inode)
