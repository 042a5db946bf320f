"""What code does a process have, and where? Its executable regions, each with the file behind it."""

from __future__ import annotations

import bisect
import ctypes
import os
from dataclasses import dataclass
from functools import cached_property

from ...sandbox.files import MappedFile
from ...sandbox.mappings import executable_mappings
from ...sandbox.parsers import Parsers
from ...text import escaped
from .shape import Shape

_VDSO = b"[vdso]"
_VSYSCALL = b"[vsyscall]"
_MAX_PATH = 1024

FileKey = tuple[int, int, int] | str
"""(device major, minor, inode), or the name of what is no file."""


@dataclass(frozen=True)
class Region:
    """One executable mapping."""

    start: int
    end: int
    offset: int
    file: tuple[int, int, int] | None
    """(device major, minor, inode); None for memory without a file."""
    raw_path: bytes

    @property
    def is_vdso(self) -> bool:
        return self.raw_path == _VDSO

    @property
    def key(self) -> FileKey | None:
        """What tells its file from others; None for memory that holds code made at run time."""
        return self.file if self.file is not None else _VDSO.decode() if self.is_vdso else None

    @cached_property
    def path(self) -> str:
        """The file's path, for people."""
        return escaped(os.fsdecode(self.raw_path), _MAX_PATH)

    def mapped(self, pid: int) -> MappedFile:
        """Return the region as a process has it."""
        major, minor, inode = self.file or (0, 0, 0)
        return MappedFile(pid, self.start, self.end, self.offset, (major, minor), inode, self.raw_path)


def regions(parsers: Parsers, pid: int) -> list[Region]:
    """Return the executable regions of a process, sorted by address; ProcessGoneError where it is gone."""
    return [
        Region(m.start, m.end, m.offset, (*m.device, m.inode) if m.inode else None, m.path)
        for m in executable_mappings(parsers, pid)
        if m.path != _VSYSCALL
    ]


def open_root(pid: int) -> int | None:
    """Open the root directory of a process, by which its files are found when it has ended; None where it has already."""
    try:
        return os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None


def own_vdso() -> bytes:
    """Return the image of the kernel's vDSO, which is the same in all processes, from this one's memory."""
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            if line.rstrip().endswith(_VDSO):
                start, end = (int(part, 16) for part in line.split()[0].split(b"-"))
                return ctypes.string_at(start, end - start)
    return b""


def load_bias(shape: Shape, region: Region) -> int | None:
    """Return the difference between addresses in the process and in the file; None where the file has nothing there."""
    if region.is_vdso:
        return region.start - shape.base
    vaddr = shape.code_vaddr(region.offset)
    return None if vaddr is None else region.start - vaddr


class RegionIndex:
    """Finds the region of an address."""

    def __init__(self, found: list[Region]) -> None:
        self._regions = found
        self._starts = [r.start for r in found]

    def at(self, address: int) -> Region | None:
        """Return the region that holds an address."""
        i = bisect.bisect_right(self._starts, address) - 1
        return self._regions[i] if i >= 0 and address < self._regions[i].end else None

    def __len__(self) -> int:
        return len(self._regions)
