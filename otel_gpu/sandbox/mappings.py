"""What has a process mapped? Its `maps`, read by a child: a process can keep whoever reads them waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import ProcessGoneError
from ..signals.structs import Frozen
from .batches import each
from .confinement import Limits
from .files import MappedFile, ProcessFile
from .parsers import Parsers
from .work import GONE, OpenFile, work

Row = tuple[int, int, int, int, int, int, bytes]
"""start, end, offset, device's major and minor number, inode, path."""

_DELETED = b" (deleted)"
_PIECE = 1 << 20
_MAX_BYTES = 64 << 20
_MAX_ROWS = 65_536
"""Executable mappings of one process."""
_READING = Limits(answer_s=2.0, cpu_s=30, memory_bytes=512 << 20, answer_bytes=256 << 20)


class Mappings(Frozen):
    """What a process has mapped executable."""

    pid: int
    files: list[MappedFile]
    is_answered: bool
    """Whether these are all, for now and as far as the process may be looked at."""
    reason: str
    """Why not."""
    is_tried: bool
    """False: another process beside it did not answer."""


def executable_mappings(parsers: Parsers, pid: int) -> list[MappedFile]:
    """Return what a process has mapped executable, sorted by address.

    Memory without a file has the inode 0. ProcessGoneError where the process is gone, PermissionError where it may not be
    looked at; empty where it does not let itself be looked at.
    """
    for outcome in each(parsers, read_executable, [ProcessFile(pid, "maps")], None, _READING):
        if outcome.answer is not None:
            return [mapped_file(pid, row) for row in outcome.answer]
        if outcome.error == "PermissionError":
            raise PermissionError(outcome.reason)
        if outcome.error in GONE:
            raise ProcessGoneError(f"process {pid} is gone")
    return []


def mappings_of_all(parsers: Parsers, pids: Sequence[int]) -> Iterator[tuple[int, list[MappedFile]]]:
    """Yield what each process has mapped executable, of those that are there and may be looked at."""
    for outcome in each(parsers, read_executable, [ProcessFile(pid, "maps") for pid in pids], None, _READING):
        if outcome.answer:
            pid = pids[outcome.number]
            yield pid, [mapped_file(pid, row) for row in outcome.answer]


def mappings_of_each(parsers: Parsers, pids: Sequence[int]) -> Iterator[Mappings]:
    """Yield what each process has mapped executable, or that it is not known, until one does not answer."""
    files = [ProcessFile(pid, "maps") for pid in pids]
    for outcome in each(parsers, read_executable, files, None, _READING, max_bad=1):
        pid = pids[outcome.number]
        mapped = [mapped_file(pid, row) for row in outcome.answer or ()]
        # What cannot be opened has an error: the process is gone, or may not be looked at.
        yield Mappings(pid, mapped, outcome.answer is not None or bool(outcome.error), outcome.reason, outcome.is_tried)


def mapped_file(pid: int, row: Row) -> MappedFile:
    """Return a row as a mapping of a process."""
    start, end, offset, major, minor, inode, path = row
    return MappedFile(pid, start, end, offset, (major, minor), inode, path)


@work(type(None), list[Row])
def read_executable(files: Sequence[OpenFile], _: None) -> Iterator[list[Row]]:
    """Yield the executable mappings of each `maps`."""
    for file in files:
        if file.descriptor >= 0:
            yield list(parse_executable(_whole(file)))


def parse_executable(maps: bytes) -> Iterator[Row]:
    """Yield the executable mappings that a `maps` lists."""
    found = 0
    # Not splitlines(): in a path the kernel escapes a newline only, and a carriage return may stand there as it is.
    for line in maps.split(b"\n"):
        fields = line.split(None, 5)
        if len(fields) < 5 or b"x" not in fields[1] or found >= _MAX_ROWS:
            continue
        start, _, end = fields[0].partition(b"-")
        major, _, minor = fields[3].partition(b":")
        path = fields[5].replace(rb"\012", b"\n").removesuffix(_DELETED) if len(fields) > 5 else b""
        found += 1
        yield int(start, 16), int(end, 16), int(fields[2], 16), int(major, 16), int(minor, 16), int(fields[4]), path


def _whole(file: OpenFile) -> bytes:
    data = bytearray()
    while len(data) < _MAX_BYTES and (piece := file.read(len(data), _PIECE)):
        data += piece
    return bytes(data)
