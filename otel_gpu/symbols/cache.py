"""What was already worked out about this very file, in an earlier run?

Values are kept on disk by build id and file size, each in one file that is replaced as a whole. Anything unexpected in
it (another version, a broken checksum, another owner) means that the value is worked out again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import TypeVar

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
        self.directory = directory if directory is not None else default_directory()
        self.max_bytes = max_bytes

    def read(self, elf: ElfFile, kind: str, value_type: type[_T]) -> _T | None:
        """Return the value of that kind that was written for the same file; None where there is none."""
        import msgspec
        import zstandard

        path = self._path(elf, kind)
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                owner = os.fstat(file.fileno()).st_uid
                data = file.read(_MAX_FILE)
            magic, version, _, checksum, size = _HEADER.unpack_from(data)
            payload = data[_HEADER.size :]
            if (magic, version, checksum) != (_MAGIC, _VERSION, zlib.crc32(payload)) or size > _MAX_VALUE:
                return None
            if owner not in (0, os.geteuid()):
                return None
            raw = zstandard.ZstdDecompressor().decompress(payload, max_output_size=size)
            value = msgspec.msgpack.decode(raw, type=value_type)
        except FileNotFoundError:
            return None
        except (OSError, struct.error, zstandard.ZstdError, msgspec.MsgspecError) as error:
            _log.info("cached symbols in %s are unusable (%s); they are worked out again", path, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # what was used last is evicted last
        return value

    def write(self, elf: ElfFile, kind: str, value: object) -> None:
        """Keep a value for the file, and drop the values used longest ago beyond the cache's size."""
        import msgspec
        import zstandard

        path = self._path(elf, kind)
        if path is None:
            return
        raw = msgspec.msgpack.encode(value)
        payload = zstandard.ZstdCompressor(level=1).compress(raw)
        if len(raw) > _MAX_VALUE or len(payload) + _HEADER.size > _MAX_FILE:
            return
        data = _HEADER.pack(_MAGIC, _VERSION, 0, zlib.crc32(payload), len(raw)) + payload
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self.directory, prefix=".")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                Path(temporary).replace(path)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
            self._evict()
        except OSError as error:
            _log.info("symbols cannot be cached in %s: %s", self.directory, error)

    def _path(self, elf: ElfFile, kind: str) -> Path | None:
        # The size is part of the key: a file that borrows another's build id would otherwise answer for it.
        try:
            build_id = elf.build_id()
        except ElfError:
            return None
        return self.directory / f"{build_id}-{len(elf.data):x}.{kind}" if build_id else None

    def _evict(self) -> None:
        files = []
        for entry in os.scandir(self.directory):
            with contextlib.suppress(FileNotFoundError):  # another process evicts too
                status = entry.stat(follow_symlinks=False)
                files.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.max_bytes:
                break
            Path(path).unlink(missing_ok=True)
            total -= size


def default_directory() -> Path:
    """Return where this user's cache lies: under XDG_CACHE_HOME, for the system's agent under /var/cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "otel-gpu" / "symbols"
    if os.geteuid() == 0:
        return Path("/var/cache/otel-gpu/symbols")
    return Path.home() / ".cache" / "otel-gpu" / "symbols"
