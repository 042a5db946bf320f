"""Is there a map that another program has pinned, and is it what it is taken for?"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_uint32, c_uint64
from types import TracebackType

from ..errors import OtelGpuError
from . import libbpf as lib

_GET, _INFO = 7, 15
_READ_ONLY = 1 << 3
_INFO_BYTES = 88


class UnexpectedMapError(OtelGpuError):
    """What is pinned there is no map of the kind that it should be."""


class _Object(ctypes.Structure):
    _fields_ = (("pathname", c_uint64), ("fd", c_uint32), ("flags", c_uint32))


class _Info(ctypes.Structure):
    _fields_ = (("fd", c_uint32), ("size", c_uint32), ("info", c_uint64))


class Pinned:
    """A pinned map, open for reading as long as the context lasts; OSError where there is none."""

    def __init__(self, path: str, kind: int, key_size: int, value_size: int) -> None:
        name = ctypes.create_string_buffer(os.fsencode(path))
        self.fd = lib.bpf(_GET, _Object(ctypes.addressof(name), 0, _READ_ONLY))
        info = (c_uint32 * (_INFO_BYTES // 4))()
        try:
            lib.bpf(_INFO, _Info(self.fd, _INFO_BYTES, ctypes.addressof(info)))
        except OSError as e:
            self.close()
            raise UnexpectedMapError(f"{path} is no map: it is not read") from e
        self.id = int(info[1])
        if (info[0], info[2], info[3]) != (kind, key_size, value_size):
            self.close()
            raise UnexpectedMapError(
                f"{path} is a map of type {info[0]} with keys of {info[2]} and values of {info[3]} bytes, not of type {kind} "
                f"with {key_size} and {value_size}: it is not read"
            )

    def __enter__(self) -> Pinned:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it; idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
