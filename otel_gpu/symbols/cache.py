"""What was already worked out about this very file, in an earlier run?

Values are kept by build id and file size. Anything unexpected in what was kept (another version, a broken checksum)
means that the value is worked out again.
"""

from __future__ import annotations

import logging
import struct
import zlib
from pathlib import Path
from typing import TypeVar

from ..disk_cache import DiskCache, default_directory
from ..elf import ElfFile
from ..errors import ElfError

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_MAGIC = b"OGSC"
_VERSION = 1
_HEADER = struct.Struct("<4sHHIQ")  # magic, version, reserved, CRC-32 of the payload, its size when decompressed
_MAX_VALUE = 512 << 20
_MAX_FILE = 128 << 20


class SymbolCache:
    """Values by file, on disk; safe to share between processes. A cache that cannot be written costs time only."""

    def __init__(self, directory: Path | None = None, max_bytes: int = 256 << 20) -> None:
        self._disk = DiskCache(directory if directory is not None else default_directory("symbols"), max_bytes)

    @property
    def directory(self) -> Path:
        """Where the values lie."""
        return self._disk.directory

    def read(self, elf: ElfFile, kind: str, value_type: type[_T]) -> _T | None:
        """Return the value of that kind that was written for the same file; None where there is none."""
        import msgspec
        import zstandard

        name = _name(elf, kind)
        if name is None:
            return None
        try:
            data = self._disk.read(name)
            magic, version, _, checksum, size = _HEADER.unpack_from(data)
            payload = data[_HEADER.size : _MAX_FILE]
            if (magic, version, checksum) != (_MAGIC, _VERSION, zlib.crc32(payload)) or size > _MAX_VALUE:
                return None
            raw = zstandard.ZstdDecompressor().decompress(payload, max_output_size=size)
            value = msgspec.msgpack.decode(raw, type=value_type)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, struct.error, zstandard.ZstdError, msgspec.MsgspecError) as error:
            _log.info("cached symbols in %s are unusable (%s); they are worked out again", name, error)
            return None
        return value

    def write(self, elf: ElfFile, kind: str, value: object) -> None:
        """Keep a value for the file, and drop the values used longest ago beyond the cache's size."""
        import msgspec
        import zstandard

        name = _name(elf, kind)
        if name is None:
            return
        raw = msgspec.msgpack.encode(value)
        payload = zstandard.ZstdCompressor(level=1).compress(raw)
        if len(raw) > _MAX_VALUE or len(payload) + _HEADER.size > _MAX_FILE:
            return
        try:
            self._disk.put(name, (_HEADER.pack(_MAGIC, _VERSION, 0, zlib.crc32(payload), len(raw)), payload))
        except OSError as error:
            _log.info("symbols cannot be cached in %s: %s", self.directory, error)


def _name(elf: ElfFile, kind: str) -> str | None:
    # The size is part of the name: a file that borrows another's build id would otherwise answer for it.
    try:
        build_id = elf.build_id()
    except ElfError:
        return None
    return f"{build_id}-{elf.size:x}.{kind}" if build_id else None
