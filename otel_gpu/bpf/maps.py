"""What stands in a BPF map? Reads by batch into numpy arrays, single writes and deletes."""

from __future__ import annotations

import ctypes
import errno
import functools
import itertools
from collections.abc import Iterator
from ctypes import c_uint32, c_uint64

import numpy as np
import numpy.typing as npt

from ..signals.structs import Frozen
from . import libbpf as lib

PERCPU_HASH, PERCPU_ARRAY = 5, 6
_PER_CPU = (PERCPU_HASH, PERCPU_ARRAY)
NO_EXIST = 1
"""A flag of `put`: only where the key is not there."""
_LOOKUP, _UPDATE, _DELETE, _NEXT_KEY, _LOOKUP_BATCH, _DELETE_BATCH = 1, 2, 3, 4, 24, 27
_BATCH = 4096
_ENOTSUPP = 524
"""What kernels below 5.13 answer to a batch of a trie; it has no name in user space."""

ByteArray = npt.NDArray[np.uint8]


class _Element(ctypes.Structure):
    _fields_ = (("map_fd", c_uint32), ("pad", c_uint32), ("key", c_uint64), ("value", c_uint64), ("flags", c_uint64))


class _Batch(ctypes.Structure):
    _fields_ = (
        ("in_batch", c_uint64),
        ("out_batch", c_uint64),
        ("keys", c_uint64),
        ("values", c_uint64),
        ("count", c_uint32),
        ("map_fd", c_uint32),
        ("elem_flags", c_uint64),
        ("flags", c_uint64),
    )


@functools.cache
def possible_cpus() -> int:
    """Return how many values a per-CPU map holds for each key."""
    return int(lib.libbpf().libbpf_num_possible_cpus())


class BpfMap(Frozen):
    """A loaded map; its descriptor belongs to the object."""

    name: str
    fd: int
    kind: int
    key_size: int
    value_size: int
    max_entries: int

    @property
    def stride(self) -> int:
        """Bytes that one entry's value, or values, take when read."""
        if self.kind in _PER_CPU:
            return (self.value_size + 7) // 8 * 8 * possible_cpus()
        return self.value_size

    def read(self, key: npt.DTypeLike, value: npt.DTypeLike) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
        """Return all keys, of shape (n,), and values: shape (n,), or (n, cpus) for per-CPU maps."""
        parts = list(self.read_parts(key, value))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([keys for keys, _ in parts]), np.concatenate([values for _, values in parts])

    def read_parts(
        self, key: npt.DTypeLike, value: npt.DTypeLike
    ) -> Iterator[tuple[npt.NDArray[np.void], npt.NDArray[np.void]]]:
        """Yield keys and values a few thousand at a time, as `read` returns them; entries may go in between."""
        for keys, values in self._parts():
            rows = values.view(value)
            yield keys.view(key).reshape(-1), rows if self.kind in _PER_CPU else rows.reshape(-1)

    def _parts(self) -> Iterator[tuple[ByteArray, ByteArray]]:
        token = np.zeros(max(self.key_size, 8), np.uint8)
        # A hash hands out whole hash buckets: a batch smaller than one is refused with ENOSPC.
        size = min(_BATCH, self.max_entries)
        first = True
        while True:
            keys = np.empty((size, self.key_size), np.uint8)
            values = np.empty((size, self.stride), np.uint8)
            request = _Batch(
                0 if first else token.ctypes.data,
                token.ctypes.data,
                keys.ctypes.data,
                values.ctypes.data,
                size,
                self.fd,
            )
            ended = False
            try:
                lib.bpf(_LOOKUP_BATCH, request)
            except OSError as e:
                if e.errno == errno.ENOSPC:
                    size *= 2
                    continue
                if e.errno != errno.ENOENT:
                    raise
                ended = True
            if request.count or first:
                yield keys[: request.count], values[: request.count]
            if ended:
                return
            first = False

    def keys_in_parts(self) -> Iterator[npt.NDArray[np.void]]:
        """Yield the keys of a trie, some thousands at a time; one that is taken out meanwhile may have all come anew."""
        layout = np.dtype((np.void, self.key_size))
        try:
            for keys, _ in self._parts():
                yield keys.view(layout).reshape(-1)
        except OSError as e:
            if e.errno != _ENOTSUPP:
                raise
            one_by_one = self.each_key()
            while some := b"".join(itertools.islice(one_by_one, _BATCH)):
                yield np.frombuffer(some, layout)

    def each_key(self) -> Iterator[bytes]:
        """Yield the keys one by one."""
        # The one after which is asked, and in which the answer is written: from the second time on they are one.
        key = ctypes.create_string_buffer(self.key_size)
        request = _Element(self.fd, 0, 0, ctypes.addressof(key), 0)
        while True:
            try:
                lib.bpf(_NEXT_KEY, request)
            except OSError as e:
                if e.errno == errno.ENOENT:
                    return
                raise
            request.key = ctypes.addressof(key)
            yield key.raw

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key (of all CPUs, one behind the other, for per-CPU maps)."""
        value = ctypes.create_string_buffer(self.stride)
        try:
            self._element(_LOOKUP, key, ctypes.addressof(value))
        except OSError as e:
            if e.errno == errno.ENOENT:
                return None
            raise
        return value.raw

    def put(self, key: bytes, value: bytes, flags: int = 0) -> None:
        """Write one value; OSError (E2BIG, ENOMEM) when the map is full."""
        buffer = ctypes.create_string_buffer(value, len(value))
        self._element(_UPDATE, key, ctypes.addressof(buffer), flags)

    def delete(self, key: bytes) -> bool:
        """Remove a key; False when it was not there."""
        try:
            self._element(_DELETE, key, 0)
        except OSError as e:
            if e.errno == errno.ENOENT:
                return False
            raise
        return True

    def delete_many(self, keys: npt.NDArray[np.void]) -> int:
        """Remove keys, of those that are there, and return how many these were.

        One system call removes most of them; of tries, kernels below 5.13 remove them one by one.
        """
        keys = np.ascontiguousarray(keys)
        done = deleted = 0
        while done < len(keys):
            request = _Batch(keys=keys[done:].ctypes.data, count=len(keys) - done, map_fd=self.fd)
            try:
                lib.bpf(_DELETE_BATCH, request)
            except OSError as e:
                if e.errno == _ENOTSUPP:
                    return sum(self.delete(key.tobytes()) for key in keys)
                if e.errno != errno.ENOENT:
                    raise
                done += 1  # the one at which it stopped is not there
            done += request.count
            deleted += request.count
        return deleted

    def _element(self, command: int, key: bytes, value: int, flags: int = 0) -> None:
        assert len(key) == self.key_size
        buffer = ctypes.create_string_buffer(key, len(key))
        lib.bpf(command, _Element(self.fd, 0, ctypes.addressof(buffer), value, flags))
