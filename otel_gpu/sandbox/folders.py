"""Which files lie below a directory, or under a path, that a process names? Found, and opened, as that process itself could.

A process may name any directory as its own: what it may not read itself is not read for it. Names are looked up below its
root, which neither a link nor `..` leads out of, and what is found is not looked into.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from .confinement import rights_of
from .files import NamedFile, ProcessFolders, RefusedFileError, look_up, reopened

_MAX_ENTRIES = 20_000
"""Files and directories that are looked at."""
_MAX_OPEN = 8_192
_MAX_DEPTH = 8
_OTHERS = 64
"""Descriptors that are kept for everything else."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK_UP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_named(file: NamedFile) -> int:
    """Open a file for reading that a process may read; OSError where nobody can be as it is."""
    root = os.open(f"/proc/{file.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with rights_of(file.pid):
            return reopened(look_up(root, file.path), file.shown)
    finally:
        os.close(root)


def open_below(folders: ProcessFolders) -> list[tuple[int, str]]:
    """Return (descriptor, name) of the files that a process may read; OSError where nobody can be as it is."""
    root = os.open(f"/proc/{folders.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _below(root, folders)
    finally:
        os.close(root)


def _below(root: int, folders: ProcessFolders) -> list[tuple[int, str]]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    walk = _Walk(folders.largest, min(most - _OTHERS, _MAX_OPEN))
    with rights_of(folders.pid):
        return [file for path in folders.paths for file in walk.files_of(root, path)]


class _Walk:
    def __init__(self, largest: int, most_open: int) -> None:
        self._largest = largest
        self._left_to_open = most_open
        self._left_to_see = _MAX_ENTRIES

    def files_of(self, root: int, path: bytes) -> Iterator[tuple[int, str]]:
        """Yield what is below a path below a root."""
        try:
            place = look_up(root, path)
        except OSError:
            return
        try:
            yield from self._files_below(os.open(f"/proc/self/fd/{place}", _DIRECTORY & ~os.O_NOFOLLOW), 0)
        except OSError:
            return
        finally:
            os.close(place)

    def _files_below(self, directory: int, depth: int) -> Iterator[tuple[int, str]]:
        """Yield what is below a directory, which is closed then."""
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._left_to_see -= 1
                    if self._left_to_see < 0 or self._left_to_open <= 0:
                        return
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            if depth < _MAX_DEPTH:
                                yield from self._files_below(
                                    os.open(entry.name, _DIRECTORY, dir_fd=directory), depth + 1
                                )
                        elif entry.is_file(follow_symlinks=False):
                            yield from self._file(os.open(entry.name, _LOOK_UP, dir_fd=directory), entry.name)
                    except (OSError, RefusedFileError):
                        continue
        finally:
            os.close(directory)

    def _file(self, found: int, name: str) -> Iterator[tuple[int, str]]:
        if 0 < os.fstat(found).st_size <= self._largest:
            self._left_to_open -= 1
            yield reopened(found, name), name
        else:
            os.close(found)
