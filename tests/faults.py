"""Which system call fails? The n-th of those that touch the disk, once, as on a full or a broken one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

CALLS = (
    "open",
    "mkdir",
    "write",
    "rename",
    "fsync",
    "fchmod",
    "ftruncate",
    "fstat",
    "stat",
    "pread",
    "unlink",
    "scandir",
    "readlink",
    "utime",
)


@contextmanager
def failing(number: int, code: int = errno.ENOSPC, calls: tuple[str, ...] = CALLS) -> Iterator[list[str]]:
    """Let the call of this number fail; yields the names of the calls that were made."""
    made: list[str] = []

    def counted(name: str, real: object) -> object:
        def call(*arguments: object, **more: object) -> object:
            made.append(name)
            if len(made) - 1 == number:
                raise OSError(code, os.strerror(code))
            return real(*arguments, **more)

        return call

    # `os` is the edge of this program: nothing of our own is replaced.
    patches = [patch.object(os, name, counted(name, getattr(os, name))) for name in calls]
    try:
        for one in patches:
            one.start()
        yield made
    finally:
        for one in patches:
            one.stop()
