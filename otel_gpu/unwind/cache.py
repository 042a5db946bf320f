"""Was this very file's table compiled before?

Tables are kept under the cache directory of the user, one file each, and are mapped rather than read: all agents of
a host share the pages. A table is named by the build id and by a hash of all that it is compiled from, as a hostile
file may borrow another's build id. A file of another version, with a wrong checksum or another owner is compiled
anew. Writing is atomic, and the oldest files go when there are too many bytes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

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


def default_directory() -> Path:
    """Return where tables are kept when nothing else is said."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "otel-gpu" / "unwind"


class TableCache:
    """Unwinding tables on disk. A cache that cannot be used costs time, nothing else; `failures` counts that."""

    def __init__(self, directory: Path | None = None, max_bytes: int = 512 << 20) -> None:
        self.directory = directory if directory is not None else default_directory()
        self.max_bytes = max_bytes
        self.failures = 0

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
        path = self._path(elf)
        try:
            with open(path, "rb") as f:
                status = os.fstat(f.fileno())
                if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                    raise ValueError("others could have written it")
                table = _decode(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, struct.error) as e:
            self.failures += 1
            _log.debug("unwinding table %s is not usable and will be compiled anew: %s", path, e)
            return None
        return table

    def store(self, elf: ElfFile, table: UnwindTable) -> None:
        """Keep a table."""
        path = self._path(elf)
        temporary = None
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=".", suffix=".new")
            with os.fdopen(handle, "wb") as f:
                for block in _encode(table):
                    f.write(block)
            os.replace(temporary, path)
            self._shrink(keep=path.name)
        except OSError as e:
            self.failures += 1
            _log.debug("unwinding table %s cannot be kept: %s", path, e)
            if temporary is not None and os.path.exists(temporary):
                os.unlink(temporary)

    def _path(self, elf: ElfFile) -> Path:
        offset, size, vaddr = locate(elf)
        described = (elf.machine, elf.entry, elf.segments, vaddr)
        origin = hashlib.blake2b(repr(described).encode(), digest_size=16)
        for at in range(offset, offset + size, _BLOCK):
            origin.update(elf.read(at, min(_BLOCK, offset + size - at)))
        elf.forget(offset, size)
        return self.directory / f"{elf.build_id() or 'none'}-{origin.hexdigest()}.rows"

    def _shrink(self, keep: str) -> None:
        """Remove the files unused for the longest time until the rest fits."""
        files = []
        for entry in os.scandir(self.directory):
            if entry.is_file(follow_symlinks=False) and entry.name != keep:
                status = entry.stat(follow_symlinks=False)
                files.append((status.st_mtime_ns, status.st_size, entry.path))
        total = sum(size for _, size, _ in files) + os.path.getsize(self.directory / keep)
        for _, size, path in sorted(files):
            if total <= self.max_bytes:
                break
            os.unlink(path)
            total -= size


def _encode(table: UnwindTable) -> tuple[bytes, bytes, bytes]:
    rows = np.ascontiguousarray(table.rows).tobytes()
    skipped = json.dumps(dict(table.skipped)).encode()
    checksum = zlib.crc32(skipped, zlib.crc32(rows))
    header = _HEADER.pack(_MAGIC, _VERSION, 0, table.end_pc, table.functions, len(skipped), checksum, table.rows.size)
    return header, rows, skipped


def _decode(data: mmap.mmap) -> UnwindTable:
    magic, version, _, end_pc, functions, skipped_size, checksum, count = _HEADER.unpack_from(data)
    end = _HEADER.size + ROW.itemsize * count
    if magic != _MAGIC or version != _VERSION:
        raise ValueError("it is of another version")
    if count > _MAX_ROWS or end + skipped_size != len(data):
        raise ValueError("its size is wrong")
    with memoryview(data) as view, view[_HEADER.size :] as body:
        if zlib.crc32(body) != checksum:
            raise ValueError("its checksum is wrong")
    rows = np.frombuffer(data, ROW, count, _HEADER.size)
    skipped = json.loads(data[end:])
    return UnwindTable(rows, end_pc, functions, skipped)
