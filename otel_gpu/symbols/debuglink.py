"""Where are the symbols that were split off a stripped file?

Debug packages put them under /usr/lib/debug, named by build id; older ones are named by the file's `.gnu_debuglink`.
A file that was found is used only when it belongs: same build id, or the checksum that the link states.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence

from ..elf import ElfFile
from ..errors import ElfError

DEBUG_ROOTS = ("/usr/lib/debug",)
_MAX_CHECKED = 1 << 30
_MAX_LINK = 4096
_BLOCK = 1 << 20


def find_debug_file(elf: ElfFile, roots: Sequence[str] = DEBUG_ROOTS) -> str | None:
    """Return the path of the file with `elf`'s split-off symbols; None where there is none."""
    own = elf.build_id()
    if own is not None and len(own) > 2:
        for root in roots:
            path = os.path.join(root, ".build-id", own[:2], own[2:] + ".debug")
            if _has_build_id(path, own):
                return path
    link = _read_link(elf)
    if link is None:
        return None
    name, checksum = link
    for path in _candidates(elf.path, name, roots):
        if _has_build_id(path, own) if own is not None else _has_checksum(path, checksum):
            return path
    return None


def _candidates(path: str, name: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the places where debuggers look (GDB manual, "Debugging Information in Separate Files")."""
    folder = os.path.dirname(os.path.abspath(path))
    yield os.path.join(folder, name)
    yield os.path.join(folder, ".debug", name)
    for root in roots:
        yield os.path.join(root, folder.lstrip("/"), name)


def _read_link(elf: ElfFile) -> tuple[str, int] | None:
    section = elf.section(".gnu_debuglink")
    if section is None or not 8 <= section.size <= _MAX_LINK:
        return None
    data = elf.section_data(section)
    end = data.find(b"\0")
    name = data[: max(end, 0)].decode("utf-8", "replace")
    # A path instead of a name would lead out of the places searched.
    if not name or "/" in name or name in (".", "..") or (end + 4 & ~3) + 4 > len(data):
        return None
    return name, int.from_bytes(data[end + 4 & ~3 :][:4], "little")


def _has_build_id(path: str, wanted: str) -> bool:
    try:
        with ElfFile(path) as found:
            return found.build_id() == wanted
    except (OSError, ElfError):
        return False


def _has_checksum(path: str, wanted: int) -> bool:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _MAX_CHECKED:
            return False
        checksum = 0
        with open(path, "rb") as f:
            while block := f.read(_BLOCK):
                checksum = zlib.crc32(block, checksum)
    except OSError:
        return False
    return checksum == wanted
