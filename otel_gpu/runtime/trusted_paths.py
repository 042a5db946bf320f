"""How is a file of ours opened where a stranger may have been before?

By the descriptor of its directory, never by a path that is followed twice: nothing is written through a symbolic link
or a second name of a file, and no FIFO or device holds anybody up.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterable
from typing import Protocol

UNFINISHED = ".new"
"""How the names of files end that are still being written."""

_OTHERS_MAY_WRITE = 0o022
_MAX_LINKS = 40
_STEP = os.O_PATH | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a directory"}


class UntrustedPathError(OSError):
    """Something that a stranger may have put there, or could change."""

    def __init__(self, why: str, path: str) -> None:
        super().__init__(errno.EPERM, why, path)


class Owner(Protocol):
    """A user to whom a new file is given."""

    @property
    def uid(self) -> int:
        """Return the number of the user."""

    @property
    def gid(self) -> int:
        """Return the number of the user's group."""

    def may_write(self, directory: os.stat_result) -> bool:
        """Say whether the user could make a file in a directory."""


def open_directory(path: str | os.PathLike[str], *, make: int | None = None, private: bool = False) -> int:
    """Return the descriptor of a directory; with `make` its missing parts are made, with this mode.

    Symbolic links on the way are followed if they are ours or root's. `private` wants more: that nobody but this
    user and root can change what is found there, or put another directory in its place.
    """
    name = os.path.abspath(path) if private else os.fspath(path)
    remaining = name.split("/")[::-1]
    links = 0
    at = os.open("/" if name.startswith("/") else ".", _STEP | os.O_DIRECTORY)
    try:
        _check_directory(at, private, name)
        while remaining:
            part = remaining.pop()
            if part in ("", "."):
                continue
            found = _step(part, at, make)
            status = os.fstat(found)
            if stat.S_ISLNK(status.st_mode):
                try:
                    target = os.readlink("", dir_fd=found)
                finally:
                    os.close(found)
                links += 1
                if status.st_uid not in {0, *_our_users()}:
                    raise UntrustedPathError(f"{part} is a symbolic link of user {status.st_uid}", name)
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
                if target.startswith("/"):
                    root = os.open("/", _STEP | os.O_DIRECTORY)
                    os.close(at)
                    at = root
                remaining += target.split("/")[::-1]
                continue
            os.close(at)
            at = found
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
            _check_directory(at, private, name)
        opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)
    if private and os.fstat(opened).st_mode & _OTHERS_MAY_WRITE:
        os.close(opened)
        raise UntrustedPathError("others may write there", name)
    return opened


def open_file(
    name: str, directory: int, flags: int, mode: int = 0o600, *, owners: Collection[int] | None = None
) -> int:
    """Open a regular file that has no other name; UntrustedPathError where it is something else.

    It is one of our own, or of the `owners`.
    """
    check_file(name, directory, owners=owners)  # before it is opened: to open a device may already do something
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        file = os.open(name, flags, mode, dir_fd=directory)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENXIO):
            raise UntrustedPathError("it is no regular file", name) from e
        raise
    try:
        _check_file(os.fstat(file), name, owners)
    except BaseException:
        os.close(file)
        raise
    return file


def check_file(name: str, directory: int, *, owners: Collection[int] | None = None) -> None:
    """Raise UntrustedPathError where a name stands for something that `open_file` would refuse."""
    with contextlib.suppress(FileNotFoundError):
        _check_file(os.stat(name, dir_fd=directory, follow_symlinks=False), name, owners)


def replace_file(
    name: str,
    directory: int,
    blocks: Iterable[bytes],
    *,
    mode: int = 0o600,
    durable: bool = True,
    owner: Owner | None = None,
) -> None:
    """Put a new file in the place of whatever has the name: whole, or not at all.

    `durable` waits until it is on the disk, so that not even a power cut leaves half of it. The file is given to the
    `owner` if that user could have put it there.
    """
    temporary = _temporary()
    file = os.open(temporary, _NEW, 0o600, dir_fd=directory)
    try:
        try:
            for block in blocks:
                write_all(file, block)
            os.fchmod(file, mode)
            # Last: who has given a file away may not change it any more.
            if owner is not None and _could_replace(name, directory, owner):
                # Where not even root may give files away, it stays root's.
                with contextlib.suppress(PermissionError):
                    os.fchown(file, owner.uid, owner.gid)
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def try_out(directory: int) -> None:
    """Make a file in a directory and remove it; OSError where that cannot be."""
    name = _temporary()
    os.close(os.open(name, _NEW, 0o600, dir_fd=directory))
    os.unlink(name, dir_fd=directory)


def write_all(file: int, data: bytes | memoryview) -> int:
    """Write everything, in as many calls as it takes; return how much that was."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(file, rest) :]
    return len(data)


def _could_replace(name: str, directory: int, owner: Owner) -> bool:
    """Say whether a user could put a file there: into the user's directory, and in place of no other user's file."""
    if not owner.may_write(os.fstat(directory)):
        return False
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid == owner.uid
    except FileNotFoundError:
        return True


def _temporary() -> str:
    return f".otel-gpu-{secrets.token_hex(8)}{UNFINISHED}"


def _step(part: str, at: int, make: int | None) -> int:
    try:
        return os.open(part, _STEP | os.O_NOFOLLOW, dir_fd=at)
    except FileNotFoundError:
        if make is None:
            raise
    with contextlib.suppress(FileExistsError):  # another agent makes it too
        os.mkdir(part, make, dir_fd=at)
    return os.open(part, _STEP | os.O_NOFOLLOW, dir_fd=at)


def _check_directory(directory: int, private: bool, path: str) -> None:
    if not private:
        return
    status = os.fstat(directory)
    if status.st_uid not in (0, os.geteuid()):
        raise UntrustedPathError(f"user {status.st_uid} owns it, or a directory that it lies in", path)
    if status.st_mode & _OTHERS_MAY_WRITE and not status.st_mode & stat.S_ISVTX:
        raise UntrustedPathError("others may write there, or in a directory that it lies in", path)


def _check_file(status: os.stat_result, name: str, owners: Collection[int] | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UntrustedPathError(f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'no regular file')}", name)
    if status.st_nlink > 1:
        raise UntrustedPathError("the file has another name as well", name)
    if status.st_uid not in (_our_users() if owners is None else owners):
        raise UntrustedPathError(f"it belongs to user {status.st_uid}", name)


def _our_users() -> set[int]:
    """Return who we are; for root under sudo also who that is."""
    users = {os.geteuid()}
    if 0 in users and (user := os.environ.get("SUDO_UID", "")).isascii() and user.isdigit():
        users.add(int(user))
    return users
