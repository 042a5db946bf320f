"""How are whole lines appended to a file that others read, move away and want to be bounded?"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable

from ...runtime.trusted_paths import open_file, write_all
from .rotation import Rotation
from .settings import RotationSettings

_BLOCK = 65_536


class LineFile:
    """One file of a directory; what stands in it are whole lines. Its methods raise OSError."""

    def __init__(
        self,
        name: str,
        rotation: RotationSettings | None = None,
        *,
        append: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._rotation = Rotation(name, rotation) if rotation is not None else None
        self._append = append
        self._clock = clock
        self._file: int | None = None
        self.trouble: str | None = None
        """Why an old file could not be removed; None once it could."""

    @property
    def max_bytes(self) -> int | None:
        """How large the file may become; None without a limit."""
        return self._rotation.max_bytes if self._rotation is not None else None

    def write(self, lines: bytes, directory: int) -> None:
        """Append lines, each with its end, all of them or none; an older file is put aside where they do not fit."""
        file = self._current(directory)
        if self._rotation is not None:
            size = os.fstat(file).st_size
            if size and size + len(lines) > self._rotation.max_bytes:
                self._rotation.rotate(directory, self._clock())
                self._clean(directory)
                file = self._current(directory)
        try:
            _append_all(file, lines)
        except OSError:
            self.close()  # opened again it is looked at for what could not be taken back
            raise

    def close(self) -> None:
        """Close the file; idempotent."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _current(self, directory: int) -> int:
        """Return the file that has the name now: somebody may have moved away or removed the one we wrote to."""
        if self._file is not None:
            with contextlib.suppress(FileNotFoundError):
                there, ours = os.stat(self.name, dir_fd=directory, follow_symlinks=False), os.fstat(self._file)
                if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                    return self._file
            self.close()
            return self._open(directory, append=True)
        file = self._open(directory, append=self._append)
        self._append = True
        self._clean(directory)
        return file

    def _open(self, directory: int, *, append: bool) -> int:
        file = open_file(self.name, directory, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if not append:
                os.ftruncate(file, 0)
            _remove_torn_line(file)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return file

    def _clean(self, directory: int) -> None:
        if self._rotation is None:
            return
        try:
            self._rotation.clean(directory, self._clock())
            self.trouble = None
        except OSError as error:
            self.trouble = f"old files cannot be removed: {error.strerror}"


def _append_all(file: int, lines: bytes) -> None:
    """Write everything, or raise OSError and leave the file as it was."""
    size = os.fstat(file).st_size
    try:
        write_all(file, lines)
    except OSError:
        os.ftruncate(file, size)
        raise


def _remove_torn_line(file: int) -> None:
    """Remove what an agent that was killed while it wrote has left behind the last whole line."""
    try:
        # Nobody else writes to it, who might not have finished a line yet. What fails is only the lock: as on a file
        # system without locks.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    size = end = os.fstat(file).st_size
    while end:
        begin = max(0, end - _BLOCK)
        block = os.pread(file, end - begin, begin)
        newline = block.rfind(b"\n")
        end = begin + newline + 1
        if newline >= 0:
            break
    if end < size:
        os.ftruncate(file, end)
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
