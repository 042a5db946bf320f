"""How is a file that a stranger named opened? Confined to where it may lie, never waiting, and only if it is the very file.

A name is looked up first without opening what it leads to (O_PATH), so that no device is touched and no FIFO waited for; what
is no regular file is refused. A mapped file is opened through the kernel's own link to it, which needs
CAP_CHECKPOINT_RESTORE, or by its path below the process's root, and then believed only if device and inode are those of
the mapping. Even so a file system may keep whoever opens or reads waiting for ever, if a program stands behind it:
this is work for a process that can be given up (parser_child.py).
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat

import msgspec

from ..errors import OtelGpuError
from ..signals.structs import Frozen
from ..text import escaped

_SYS_OPENAT2 = {"x86_64": 437, "aarch64": 437}
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LOOK_UP = os.O_PATH | os.O_CLOEXEC
_OVERLAY_DEVICES = 0
"""The major number of file systems without a device: overlayfs and btrfs show another minor in mappings than in stat."""


class RefusedFileError(OtelGpuError):
    """A file was not opened: it is no regular file, or another one than was meant."""


class FileId(Frozen):
    """Which file, and which state of it: whoever changes a file changes `changed_ns`, which programs cannot set."""

    device: int
    inode: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileId:
        return cls(status.st_dev, status.st_ino, status.st_ctime_ns)

    @property
    def device_numbers(self) -> tuple[int, int]:
        """Major and minor number, as mappings show them."""
        return os.major(self.device), os.minor(self.device)


class MappedFile(msgspec.Struct, frozen=True, tag=True):
    """A file by where a process has it mapped, executable."""

    pid: int
    start: int
    """Addresses in the process."""
    end: int
    offset: int
    """In the file."""
    device: tuple[int, int]
    inode: int
    path: bytes
    """As the process sees it, without the kernel's mark for deleted files."""

    @property
    def shown(self) -> str:
        """The path, for people."""
        return escaped(os.fsdecode(self.path))

    def below(self, root: int) -> RootedFile:
        """Return the same file by its path, for when the process has ended."""
        return RootedFile(root, self.path, self.device, self.inode)


class RootedFile(msgspec.Struct, frozen=True, tag=True):
    """A file by its path below a root directory; that of a process that has ended, say. `inode` 0: whichever is there."""

    root: int
    """The number of a descriptor that the child was given, or -1 for this host's root."""
    path: bytes
    device: tuple[int, int] = (0, 0)
    inode: int = 0

    @property
    def shown(self) -> str:
        """The path, for people."""
        return escaped(os.fsdecode(self.path))


class ProcessFile(msgspec.Struct, frozen=True, tag=True):
    """One of the kernel's files about a process, such as `maps` or `mem`."""

    pid: int
    name: str

    @property
    def shown(self) -> str:
        """The path, for people."""
        return f"/proc/{self.pid}/{self.name}"


class NamedFile(msgspec.Struct, frozen=True, tag=True):
    """A file by a path that a process names: found below its root, and opened, with that process's own rights."""

    pid: int
    path: bytes

    @property
    def shown(self) -> str:
        """The path, for people."""
        return escaped(os.fsdecode(self.path))


class ProcessFolders(msgspec.Struct, frozen=True, tag=True):
    """All regular files below directories that a process names: found, and opened, with that process's own rights."""

    pid: int
    paths: list[bytes]
    largest: int
    """Bytes; larger files are left out, and empty ones."""

    @property
    def shown(self) -> str:
        """The paths, for people."""
        return escaped(os.fsdecode(b", ".join(self.paths)))


File = MappedFile | RootedFile | ProcessFile | NamedFile | ProcessFolders


def open_file(file: MappedFile | RootedFile | ProcessFile, root: int | None = None) -> int:
    """Open a file for reading; OSError where it cannot be, RefusedFileError where it should not."""
    match file:
        case MappedFile():
            return reopened(_look_up_mapped(file), file.shown)
        case RootedFile():
            found = look_up(root, file.path)
            if file.inode and not _is_same(os.fstat(found), file.device, file.inode):
                os.close(found)
                raise RefusedFileError(f"{file.shown} is another file by now")
            return reopened(found, file.shown)
        case ProcessFile():
            return os.open(f"/proc/{file.pid}/{file.name}", _OPEN)


def _look_up_mapped(file: MappedFile) -> int:
    try:
        return os.open(f"/proc/{file.pid}/map_files/{file.start:x}-{file.end:x}", _LOOK_UP)
    except FileNotFoundError:
        # Unmapped since; the file may still be where it was.
        pass
    except PermissionError:
        pass
    try:
        root = os.open(f"/proc/{file.pid}/root", _LOOK_UP | os.O_DIRECTORY)
    except (FileNotFoundError, ProcessLookupError):
        # It has ended; what it had mapped may be this host's.
        root = os.open("/", _LOOK_UP | os.O_DIRECTORY)
    try:
        found = look_up(root, file.path)
    finally:
        os.close(root)
    if not _is_same(os.fstat(found), file.device, file.inode):
        os.close(found)
        raise RefusedFileError(
            f"{file.shown} is another file than the one that process {file.pid} has mapped; CAP_CHECKPOINT_RESTORE would "
            "let otel-gpu open that one"
        )
    return found


def _is_same(status: os.stat_result, device: tuple[int, int], inode: int) -> bool:
    shown = (os.major(status.st_dev), os.minor(status.st_dev))
    without_device = shown[0] == device[0] == _OVERLAY_DEVICES
    return status.st_ino == inode and (shown == device or without_device)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def look_up(root: int | None, path: bytes) -> int:
    """Find a path below a root directory, which neither `..` nor a link leads out of; this host's for None."""
    if root is None:
        return os.open(path, _LOOK_UP)
    how = _How(_LOOK_UP, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    found: int = libc.syscall(
        ctypes.c_long(_SYS_OPENAT2[platform.machine()]),
        ctypes.c_int(root),
        ctypes.c_char_p(path),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), os.fsdecode(path))
    return found


def reopened(found: int, path: str) -> int:
    """Open for reading what was only looked up, if it is a regular file."""
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise RefusedFileError(f"{path} is no regular file")
        return os.open(f"/proc/self/fd/{found}", _OPEN)
    finally:
        os.close(found)
