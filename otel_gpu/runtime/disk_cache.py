"""What was worked out in an earlier run, or by another agent of this host?

Files of one directory, each replaced as a whole, so that agents may share it. One that somebody else could have written
is not trusted; beyond a size the files go that were used longest ago. What a file's content means, and whether it is
damaged, is its owner's business.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path

from ..text import escaped
from .trusted_paths import UNFINISHED, UntrustedPathError, open_directory, open_file, replace_file

_log = logging.getLogger(__name__)

_OTHERS_MAY_WRITE = 0o022
_ABANDONED_S = 3600
"""After so long a file that was never finished was left by an agent that ended."""
_MAX_FILE = 1 << 30


class DiskCache:
    """Named files below one directory. Its methods raise OSError.

    Where somebody else could exchange the directory or a file, there is no cache: nothing is found and nothing kept.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.directory = directory
        self.max_bytes = max_bytes

    def read(self, name: str) -> memoryview:
        """Return a file's content; ValueError where it is empty or becomes shorter.

        It is a copy: who mapped a file that is cut off meanwhile, or lies on a broken disk, would be killed by SIGBUS.
        """
        directory = self._open(make=None)
        try:
            file = open_file(name, directory, os.O_RDONLY, owners=(0, os.geteuid()))
        finally:
            os.close(directory)
        try:
            status = os.fstat(file)
            if status.st_mode & _OTHERS_MAY_WRITE:
                raise UntrustedPathError("others could have written it", name)
            if not 0 < status.st_size <= _MAX_FILE:
                raise ValueError(f"{name} is empty, or of a size that is not believable")
            content = memoryview(mmap.mmap(-1, status.st_size))  # goes back to the system at once
            _fill(content, file)
            with contextlib.suppress(OSError):
                os.utime(file)  # what was used last goes last
        finally:
            os.close(file)
        return content.toreadonly()

    def names(self) -> list[str]:
        """Return the names of all files."""
        directory = self._open(make=None)
        try:
            return os.listdir(directory)
        finally:
            os.close(directory)

    def put(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a file, whole or not at all, and remove others where there are too many bytes now."""
        try:
            directory = self._open(make=0o700)
        except UntrustedPathError:
            return
        try:
            # After a power cut it may be damaged, which its owner notices.
            replace_file(name, directory, blocks, durable=False)
            self._shrink(directory, name)
        finally:
            os.close(directory)

    def _open(self, make: int | None) -> int:
        try:
            return open_directory(self.directory, make=make, private=True)
        except UntrustedPathError as error:
            _say_untrusted(self.directory.parent, error.strerror)
            if make is None:
                raise FileNotFoundError(error.errno, error.strerror, error.filename) from error
            raise

    def _shrink(self, directory: int, keep: str) -> None:
        files, total, now = [], 0, time.time()
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another agent removes files too
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        if entry.name.endswith(UNFINISHED) and now - status.st_mtime < _ABANDONED_S:
                            continue
                        total += status.st_size
                        files.append((entry.name == keep, status.st_mtime_ns, status.st_size, entry.name))
        for is_kept, _, size, name in sorted(files):
            if total <= self.max_bytes or is_kept:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
            total -= size


def default_directory(kind: str) -> Path:
    """Return where files of a kind lie: under XDG_CACHE_HOME; for the system's agent under /var/cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # A relative one is to be ignored, says the specification: it would lie in whoever's directory this is.
    if os.path.isabs(base):
        return Path(base) / "otel-gpu" / kind
    if os.geteuid() == 0:
        return Path("/var/cache/otel-gpu") / kind
    home = os.path.expanduser("~")
    # A user without a home, as containers have them, has no cache either.
    return Path(home if os.path.isabs(home) else "/nonexistent") / ".cache" / "otel-gpu" / kind


def _fill(content: memoryview, file: int) -> None:
    at = 0
    while at < len(content):
        count = os.preadv(file, [content[at:]], at)
        if not count:
            raise ValueError("it became shorter while it was read")
        at += count


@functools.cache
def _say_untrusted(base: Path, why: str) -> None:
    """Say once, however many kinds of files would lie there."""
    _log.warning(
        "nothing is kept in %s: %s; what takes long is worked out anew in every run; set XDG_CACHE_HOME to another place",
        escaped(str(base)),
        escaped(why),
    )
