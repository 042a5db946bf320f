"""What was already worked out about this very file, in an earlier run?

Values are kept under names that are hashes of the files' content (`host_part.py`), as a hostile file may borrow another's
build id. Anything unexpected in what was kept (another version, a broken checksum) means that it is worked out again.
"""

from __future__ import annotations

import logging
import re
import struct
import zlib
from pathlib import Path
from typing import TypeVar

from ....runtime.disk_cache import DiskCache, default_directory

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_MAGIC = b"OGSC"
_VERSION = 2
_HEADER = struct.Struct("<4sHHIQ")  # magic, version, reserved, CRC-32 of the payload, its size when decompressed
_MAX_VALUE = 512 << 20
_MAX_FILE = 128 << 20
_NAME = re.compile(r"[0-9a-f]{16,64}")
"""What a hash looks like: names come from children that read strangers' files."""


class SymbolCache:
    """Values by file, on disk; safe to share between processes. A cache that cannot be written costs time only."""

    def __init__(self, directory: Path | None = None, max_bytes: int = 256 << 20) -> None:
        self._disk = DiskCache(directory if directory is not None else default_directory("symbols"), max_bytes)

    @property
    def directory(self) -> Path:
        """Where the values lie."""
        return self._disk.directory

    def names(self, kind: str) -> frozenset[str]:
        """Return the names under which a value of that kind is kept."""
        try:
            found = (name.rpartition(".") for name in self._disk.names())
        except OSError:
            return frozenset()
        return frozenset(name for name, _, its in found if its == kind)

    def read(self, name: str, kind: str, value_type: type[_T]) -> _T | None:
        """Return the value of that kind that was written under a name; None where there is none."""
        import msgspec
        import zstandard

        from ....sandbox.decoding import decode

        if not _NAME.fullmatch(name):
            return None
        try:
            data = self._disk.read(f"{name}.{kind}")
            magic, version, _, checksum, size = _HEADER.unpack_from(data)
            payload = data[_HEADER.size : _MAX_FILE]
            if (magic, version, checksum) != (_MAGIC, _VERSION, zlib.crc32(payload)) or size > _MAX_VALUE:
                return None
            raw = zstandard.ZstdDecompressor().decompress(payload, max_output_size=size)
            value = decode(raw, value_type)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, struct.error, zstandard.ZstdError, msgspec.MsgspecError) as error:
            _log.info("cached symbols in %s.%s are unusable (%s); they are worked out again", name, kind, error)
            return None
        return value

    def write(self, name: str, kind: str, value: object) -> None:
        """Keep a value under a name, and drop the values used longest ago beyond the cache's size."""
        import msgspec
        import zstandard

        if not _NAME.fullmatch(name):
            return
        raw = msgspec.msgpack.encode(value)
        payload = zstandard.ZstdCompressor(level=1).compress(raw)
        if len(raw) > _MAX_VALUE or len(payload) + _HEADER.size > _MAX_FILE:
            return
        try:
            self._disk.put(
                f"{name}.{kind}", (_HEADER.pack(_MAGIC, _VERSION, 0, zlib.crc32(payload), len(raw)), payload)
            )
        except OSError as error:
            _log.info("symbols cannot be cached in %s: %s", self.directory, error)
