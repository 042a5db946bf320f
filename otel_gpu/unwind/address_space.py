"""What code does a process have, and where? Its executable regions, each with the file behind it."""

from __future__ import annotations

import bisect
import os
from dataclasses import dataclass

from ..discovery import procfs
from ..elf import PT_LOAD, ElfFile
from ..errors import ElfError
from ..symbols.process_memory import MemoryFault, ProcessMemory

_VDSO = "[vdso]"
_MAX_VDSO = 1 << 16


@dataclass(frozen=True, slots=True)
class Region:
    """One executable mapping."""

    start: int
    end: int
    offset: int
    file: tuple[int, int, int] | None
    """(device major, minor, inode); None for memory without a file."""
    path: str

    @property
    def is_vdso(self) -> bool:
        return self.path == _VDSO


def regions(pid: int) -> list[Region]:
    """Return the executable regions of a process, sorted by address; ProcessGoneError where it is gone."""
    found = []
    for line in procfs.read(pid, "maps", 64 << 20).splitlines():
        fields = line.split(None, 5)
        if len(fields) < 5 or b"x" not in fields[1]:
            continue
        start, _, end = fields[0].partition(b"-")
        path = os.fsdecode(fields[5]) if len(fields) > 5 else ""
        if path == "[vsyscall]":
            continue
        major, _, minor = fields[3].partition(b":")
        inode = int(fields[4])
        file = (int(major, 16), int(minor, 16), inode) if inode else None
        found.append(Region(int(start, 16), int(end, 16), int(fields[2], 16), file, path.removesuffix(" (deleted)")))
    return found


def open_root(pid: int) -> int | None:
    """Open the root directory of a process, by which its files are found when it has ended; None where it has already."""
    try:
        return os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None


def open_elf(pid: int, region: Region, root: int | None = None) -> ElfFile:
    """Open the file, or the image in memory, behind a region; ElfError, OSError where that cannot be.

    With its root directory, the files of a process that has ended are found too.
    """
    if region.is_vdso:
        with ProcessMemory(pid) as memory:
            try:
                image = memory.read(region.start, min(region.end - region.start, _MAX_VDSO))
            except MemoryFault as e:
                raise ElfError(str(e)) from e
        return ElfFile.from_bytes(image, _VDSO)
    opener = f"/proc/{pid}/map_files/{region.start:x}-{region.end:x}"
    try:
        return ElfFile(opener)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    try:
        return ElfFile(f"/proc/{pid}/root{region.path}")
    except (FileNotFoundError, ProcessLookupError):
        if root is None or region.file is None:
            raise
    path = f"/proc/self/fd/{root}{region.path}"
    # Another file may have been put in its place.
    if os.stat(path).st_ino != region.file[2]:
        raise ElfError(f"{region.path} is another file by now")
    return ElfFile(path)


def load_bias(elf: ElfFile, region: Region) -> int:
    """Return the difference between addresses in the process and in the file."""
    if region.is_vdso:
        return region.start - lowest_vaddr(elf)
    return region.start - elf.code_vaddr(region.offset)


def lowest_vaddr(elf: ElfFile) -> int:
    """Return where the file's first segment wants to lie: what unwinding rows count from."""
    return min((s.vaddr for s in elf.segments if s.type == PT_LOAD), default=0)


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
