"""What was worked out in an earlier run, or by another agent of this host?

Files of one directory, each replaced as a whole, so that agents may share it. One that somebody else could have written
is not trusted; beyond a size the files go that were used longest ago. What a file's content means, and whether it is
damaged, is its owner's business.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

_OTHERS_MAY_WRITE = 0o022
_UNFINISHED = ".new"
_ABANDONED_S = 3600
"""After so long a file that was never finished was left by an agent that ended."""


class UntrustedFileError(OSError):
    """A file in the cache that somebody else owns, or may write."""


class DiskCache:
    """Named files below one directory. Its methods raise OSError."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.directory = directory
        self.max_bytes = max_bytes

    def open(self, name: str) -> mmap.mmap:
        """Return a file's content, mapped; ValueError where it is empty."""
        path = self.directory / name
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_MAY_WRITE:
                raise UntrustedFileError(f"{path}: others could have written it")
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with contextlib.suppress(OSError):
            os.utime(path)  # what was used last goes last
        return content

    def put(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a file, whole or not at all, and remove others where there are too many bytes now."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=".", suffix=_UNFINISHED)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(blocks)
            Path(temporary).replace(self.directory / name)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        self._shrink(name)

    def _shrink(self, keep: str) -> None:
        files, total, now = [], 0, time.time()
        for entry in os.scandir(self.directory):
            with contextlib.suppress(FileNotFoundError):  # another agent removes files too
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_UNFINISHED) and now - status.st_mtime < _ABANDONED_S:
                        continue
                    total += status.st_size
                    files.append((entry.name == keep, status.st_mtime_ns, status.st_size, entry.path))
        for is_kept, _, size, path in sorted(files):
            if total <= self.max_bytes or is_kept:
                break
            Path(path).unlink(missing_ok=True)
            total -= size


def default_directory(kind: str) -> Path:
    """Return where files of a kind lie: under XDG_CACHE_HOME; for the system's agent under /var/cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "otel-gpu" / kind
    if os.geteuid() == 0:
        return Path("/var/cache/otel-gpu") / kind
    return Path.home() / ".cache" / "otel-gpu" / kind
