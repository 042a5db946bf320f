"""Was this very file's table compiled before?

A table is named by the build id and by a hash of all that it is compiled from, as a hostile file may borrow another's
build id. A file of another version, or with a wrong checksum, is compiled anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

from ..disk_cache import DiskCache, default_directory
from ..elf import ElfFile
from .apart import compile_apart
from .eh_frame import compile_table
from .frame_records import locate
from .rows import ROW, UnwindTable

_log = logging.getLogger(__name__)

_MAGIC = b"OGUW"
_VERSION = 2
"""To be raised whenever the same file compiles to other rows than before."""
_HEADER = struct.Struct("<4sHHIIIIQ")
"""Magic, version, 0, end_pc, functions, size of the JSON of skipped records, CRC-32 of all that follows, rows."""
_MAX_ROWS = 1 << 24
_BLOCK = 1 << 20
_BIG_SECTION = 2 << 20
"""Bytes of `.eh_frame`; its compiler needs about five times as many."""


class TableCache:
    """Unwinding tables on disk. A cache that cannot be used costs time, nothing else; `failures` counts that."""

    def __init__(self, directory: Path | None = None, max_bytes: int = 512 << 20) -> None:
        self._disk = DiskCache(directory if directory is not None else default_directory("unwind"), max_bytes)
        self.failures = 0

    @property
    def directory(self) -> Path:
        """Where the tables lie."""
        return self._disk.directory

    def table(self, elf: ElfFile) -> UnwindTable:
        """Return the table of a file, compiled now or before; UnwindError where it has none.

        Takes about 0.5 s for each million rows that were not compiled before: not for the main thread.
        """
        found = self.load(elf)
        if found is None and self._is_big(elf):
            compile_apart(elf.path, self.directory)
            found = self.load(elf)
        if found is None:
            found = compile_table(elf)
            self.store(elf, found)
        return found

    def _is_big(self, elf: ElfFile) -> bool:
        """Say whether the compiler's memory is worth a process of its own."""
        section = elf.section(".eh_frame")
        return section is not None and section.size > _BIG_SECTION and os.path.exists(elf.path) and bool(sys.executable)

    def load(self, elf: ElfFile) -> UnwindTable | None:
        """Return the table that was stored for the same file; None where there is no good one.

        Raises UnwindError for a file that has no table at all.
        """
        name = _name(elf)
        try:
            return _decode(self._disk.read(name))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, struct.error) as e:
            self.failures += 1
            _log.debug("unwinding table %s is not usable and will be compiled anew: %s", name, e)
            return None

    def store(self, elf: ElfFile, table: UnwindTable) -> None:
        """Keep a table."""
        name = _name(elf)
        try:
            self._disk.put(name, _encode(table))
        except OSError as e:
            self.failures += 1
            _log.debug("unwinding table %s cannot be kept: %s", name, e)


def _name(elf: ElfFile) -> str:
    offset, size, vaddr = locate(elf)
    described = (elf.machine, elf.entry, elf.segments, vaddr)
    origin = hashlib.blake2b(repr(described).encode(), digest_size=16)
    for at in range(offset, offset + size, _BLOCK):
        origin.update(elf.read(at, min(_BLOCK, offset + size - at)))
    return f"{elf.build_id() or 'none'}-{origin.hexdigest()}.rows"


def _encode(table: UnwindTable) -> tuple[bytes, bytes, bytes]:
    rows = np.ascontiguousarray(table.rows).tobytes()
    skipped = json.dumps(dict(table.skipped)).encode()
    checksum = zlib.crc32(skipped, zlib.crc32(rows))
    header = _HEADER.pack(_MAGIC, _VERSION, 0, table.end_pc, table.functions, len(skipped), checksum, table.rows.size)
    return header, rows, skipped


def _decode(data: memoryview) -> UnwindTable:
    magic, version, _, end_pc, functions, skipped_size, checksum, count = _HEADER.unpack_from(data)
    end = _HEADER.size + ROW.itemsize * count
    if magic != _MAGIC or version != _VERSION:
        raise ValueError("it is of another version")
    if count > _MAX_ROWS or end + skipped_size != len(data):
        raise ValueError("its size is wrong")
    if zlib.crc32(data[_HEADER.size :]) != checksum:
        raise ValueError("its checksum is wrong")
    rows = np.frombuffer(data, ROW, count, _HEADER.size)
    skipped = json.loads(bytes(data[end:]))
    return UnwindTable(rows, end_pc, functions, skipped)
