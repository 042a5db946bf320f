"""Where are the symbols that were split off a stripped file?

Debug packages put them under /usr/lib/debug, named by build id; older ones are named by the file's `.gnu_debuglink`.
A file that was found is used only when it belongs: same build id, or the checksum that the link states.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...errors import ElfError
from ...sandbox.elf import ElfFile

DEBUG_ROOTS = (b"/usr/lib/debug",)
_MAX_CHECKED = 1 << 30
_MAX_LINK = 4096
_BLOCK = 1 << 20
_BUILD_ID = re.compile(r"[0-9a-f]{4,128}")


class DebugLink(NamedTuple):
    """What a stripped file says of the file with its symbols."""

    name: str = ""
    checksum: int = 0


class Candidate(NamedTuple):
    """A place where a debugger looks."""

    path: bytes
    in_process: bool
    """Below the process's own root directory, not this host's."""


def candidates(
    path: bytes, build_id: str, link: DebugLink, roots: Sequence[bytes] = DEBUG_ROOTS
) -> Iterator[Candidate]:
    """Yield the places where debuggers look (GDB manual, "Debugging Information in Separate Files"), the best first.

    `path` is the stripped file's, as the process sees it.
    """
    if _BUILD_ID.fullmatch(build_id):
        for root in roots:
            below = os.path.join(root, b".build-id", build_id[:2].encode(), build_id[2:].encode() + b".debug")
            yield Candidate(below, in_process=False)
            yield Candidate(below, in_process=True)
    name = os.fsencode(link.name)
    if not _is_name(name) or not path.startswith(b"/"):
        return
    folder = os.path.dirname(os.path.normpath(path))
    yield Candidate(os.path.join(folder, name), in_process=True)
    yield Candidate(os.path.join(folder, b".debug", name), in_process=True)
    for root in roots:
        below = os.path.join(root, folder.lstrip(b"/"), name)
        yield Candidate(below, in_process=False)
        yield Candidate(below, in_process=True)


def read_link(elf: ElfFile) -> DebugLink:
    """Return what a file says of the one with its symbols; an empty name where it says nothing."""
    try:
        section = elf.section(".gnu_debuglink")
        if section is None or not 8 <= section.size <= _MAX_LINK:
            return DebugLink()
        data = elf.section_data(section)
    except ElfError:
        return DebugLink()
    end = data.find(b"\0")
    name = data[: max(end, 0)]
    if not _is_name(name) or (end + 4 & ~3) + 4 > len(data):
        return DebugLink()
    return DebugLink(name.decode("utf-8", "replace"), int.from_bytes(data[end + 4 & ~3 :][:4], "little"))


def belongs(debug: ElfFile, build_id: str, link: DebugLink) -> bool:
    """Tell whether a file holds the symbols of the one with this build id, or of one without that has this link."""
    try:
        if build_id:
            return debug.build_id() == build_id
        return bool(link.name) and debug.size <= _MAX_CHECKED and _checksum(debug) == link.checksum
    except ElfError:
        return False


def _is_name(name: bytes) -> bool:
    # A path instead of a name would lead out of the places searched.
    return bool(name) and b"/" not in name and b"\0" not in name and name not in (b".", b"..")


def _checksum(elf: ElfFile) -> int:
    checksum = 0
    for at in range(0, elf.size, _BLOCK):
        checksum = zlib.crc32(elf.read(at, min(_BLOCK, elf.size - at)), checksum)
    return checksum
