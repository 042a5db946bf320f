"""What was worked out about this very file's frames in an earlier run?

Kept under a name that is a hash of all that it was worked out from (`table_work.name_of`), as a hostile file may borrow
another's build id. A file of another version, or with a wrong checksum, is worked out anew.
"""

from __future__ import annotations

import dataclasses
import logging
import struct
import threading
import zlib
from pathlib import Path

import msgspec

from ...bpf.abi.unwinding import UNWIND_ROW
from ...runtime.disk_cache import DiskCache, default_directory
from ...sandbox.decoding import decode
from .table_work import FileFrames

_log = logging.getLogger(__name__)

_MAGIC = b"OGUW"
_VERSION = 4
"""To be raised whenever the same file comes to something else than before."""
_HEADER = struct.Struct("<4sHHIIQ")
"""Magic, version, 0, CRC-32 of all that follows, size of the MessagePack of all but the rows, bytes of rows."""
_SUFFIX = ".frames"


class TableCache:
    """Unwinding tables on disk. A cache that cannot be used costs time, nothing else; `failures` counts that."""

    def __init__(self, directory: Path | None = None, max_bytes: int = 512 << 20) -> None:
        self._disk = DiskCache(directory if directory is not None else default_directory("unwind"), max_bytes)
        self._lock = threading.Lock()
        self.failures = 0

    @property
    def directory(self) -> Path:
        """Where the tables lie."""
        return self._disk.directory

    def names(self) -> frozenset[str]:
        """Return the names under which something is kept."""
        try:
            return frozenset(name.removesuffix(_SUFFIX) for name in self._disk.names() if name.endswith(_SUFFIX))
        except OSError:
            return frozenset()

    def load(self, name: str) -> FileFrames | None:
        """Return what was stored under a name; None where there is nothing good."""
        try:
            return _decode(self._disk.read(name + _SUFFIX))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, struct.error, msgspec.MsgspecError) as e:
            self._failed(f"{name} is not usable and will be worked out anew: {e}")
            return None

    def store(self, name: str, frames: FileFrames) -> None:
        """Keep what was worked out."""
        try:
            self._disk.put(name + _SUFFIX, _encode(frames))
        except OSError as e:
            self._failed(f"{name} cannot be kept: {e}")

    def _failed(self, how: str) -> None:
        with self._lock:
            self.failures += 1
        _log.debug("unwinding table %s", how)


def _encode(frames: FileFrames) -> tuple[bytes, bytes, bytes]:
    rest = msgspec.msgpack.encode(dataclasses.replace(frames, rows=b""))
    checksum = zlib.crc32(rest, zlib.crc32(frames.rows))
    return _HEADER.pack(_MAGIC, _VERSION, 0, checksum, len(rest), len(frames.rows)), frames.rows, rest


def _decode(data: memoryview) -> FileFrames:
    magic, version, _, checksum, rest_size, rows_size = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise ValueError("it is of another version")
    if rows_size % UNWIND_ROW.itemsize or _HEADER.size + rows_size + rest_size != len(data):
        raise ValueError("its size is wrong")
    if zlib.crc32(data[_HEADER.size :]) != checksum:
        raise ValueError("its checksum is wrong")
    rows = bytes(data[_HEADER.size : _HEADER.size + rows_size])
    rest = decode(data[_HEADER.size + rows_size :], FileFrames)
    return dataclasses.replace(rest, rows=rows)
