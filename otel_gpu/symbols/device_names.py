"""Which kernels are in the device code that a process has now: in its memory, its files, its compilers' caches?

Code that a program gives to the driver is an ELF file for the GPU, a fatbin of such files, or PTX text. Compilers keep
what they made in directories that the program's environment names. Only what device code says is a kernel counts: no
parameter, no section, no function that kernels call.

Everything here is bounded: pages that are not in memory are not read, files through their own descriptors only.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..discovery import procfs
from ..errors import OtelGpuError
from ..process.memory import Memory, MemoryFault, memory_of
from .fatbin import CUBIN_MACHINE, FATBIN_MAGIC, kernels_in_sections, kernels_of_image
from .residents import present_chunks
from .stubs import MAX_NAME

_MAX_BYTES = 1 << 30
_MAX_SECONDS = 5.0
_MAX_NAMES = 100_000
_MAX_IMAGE = 64 << 20
_MAX_FILES = 20_000
_MAX_FILE = 16 << 20
_OVERLAP = MAX_NAME + 64
"""A name in PTX may begin in one piece of memory and end in the next."""
_MAX_MAPS = 64 << 20
_PTX, _ELF, _FAT = b".entry", b"\x7fELF\x02\x01", struct.pack("<I", FATBIN_MAGIC)
_PTX_KERNEL = re.compile(rb"\.entry\s+([\w$%%]{1,%d})(?=[\s(])" % MAX_NAME)
_HEADER = struct.Struct("<18xH20xQ10xHHH")  # machine, section table, size of an entry, entries, the one with the names
_SECTION = struct.Struct("<24xQQ24x")  # offset, size
_FATBIN = struct.Struct("<IHHQ")

_HOME = "HOME"
_CACHES = (
    ("CUPY_CACHE_DIR", ".cupy/kernel_cache"),
    ("TRITON_CACHE_DIR", ".triton/cache"),
    ("TRITON_HOME", None),
    ("TORCHINDUCTOR_CACHE_DIR", None),
    ("NUMBA_CACHE_DIR", None),
    ("CUDA_CACHE_PATH", ".nv/ComputeCache"),
)
"""Where compilers keep what they made: the variable that says so, and the place in HOME otherwise."""
_VARIABLES = frozenset({_HOME, *(variable for variable, _ in _CACHES)})


@dataclass(slots=True)
class _Found:
    names: set[str] = field(default_factory=set)
    left: int = _MAX_BYTES
    deadline: float = field(default_factory=lambda: time.monotonic() + _MAX_SECONDS)

    def spend(self, size: int) -> bool:
        """Say whether so much more may be read."""
        self.left -= size
        return self.left >= 0 and time.monotonic() < self.deadline and len(self.names) < _MAX_NAMES

    def add(self, names: Iterable[bytes]) -> None:
        """Add kernels of one image."""
        self.names.update(name.decode("latin-1") for name in names if len(name) <= MAX_NAME)


def device_names(pid: int) -> frozenset[str]:
    """Return the kernels in the device code that a process has."""
    found = _Found()
    # The files first: they are few, and what is in them need not be looked for.
    for data in _cached(pid):
        if not found.spend(len(data)):
            break
        _search(data, found, _Bytes(data), 0)
    tail, expected = b"", 0
    with memory_of(pid) as memory:
        for start, data in present_chunks(pid, _mappings(pid)):
            if not found.spend(len(data)):
                break
            before = tail if start == expected else b""
            _search(before + data, found, memory, start - len(before))
            tail, expected = data[-_OVERLAP:], start + len(data)
    return frozenset(found.names)


def _search(data: bytes, found: _Found, memory: Memory, base: int) -> None:
    """Add the kernels of what looks like device code; an image is read from memory, for it may end behind the data."""
    for at in _all(data, _PTX):
        if match := _PTX_KERNEL.match(data, at):
            found.add((match[1],))
    for magic, read in ((_ELF, _cubin), (_FAT, _fatbin)):
        for at in _all(data, magic):
            if not found.spend(0):
                return
            with contextlib.suppress(OtelGpuError, struct.error):
                found.add(read(memory, base + at))


def _all(data: bytes, what: bytes) -> Iterator[int]:
    at = data.find(what)
    while at >= 0:
        yield at
        at = data.find(what, at + 1)


def _fatbin(memory: Memory, address: int) -> Iterable[bytes]:
    _, _, header, size = _FATBIN.unpack(memory.read(address, _FATBIN.size))
    if header + size > _MAX_IMAGE:
        return ()
    return [name.encode() for name in kernels_of_image(memory.read(address, header + size), _MAX_IMAGE).kernels]


def _cubin(memory: Memory, address: int) -> Iterable[bytes]:
    machine, table, entry, count, strings = _HEADER.unpack(memory.read(address, _HEADER.size))
    if machine != CUBIN_MACHINE or entry != _SECTION.size or not strings < count or table > _MAX_IMAGE:
        return ()
    offset, size = _SECTION.unpack(memory.read(address + table + strings * entry, entry))
    if offset + size > _MAX_IMAGE:
        return ()
    return kernels_in_sections(memory.read(address + offset, size).split(b"\0"))


class _Bytes:
    """A file's contents, read by offset."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, address: int, size: int) -> bytes:
        piece = self._data[address : address + size]
        if len(piece) != size:
            raise MemoryFault("the file ends before")
        return piece


def _mappings(pid: int) -> list[tuple[int, int]]:
    """Return what a process has in private memory, its own data first, then the smallest files."""
    found = []
    for line in procfs.read(pid, "maps", _MAX_MAPS).splitlines():
        fields = line.split(None, 5)
        if len(fields) < 5 or not fields[1].startswith(b"r") or not fields[1].endswith(b"p"):
            continue
        name = fields[5] if len(fields) > 5 else b""
        if name.startswith((b"/dev/", b"[v")):
            continue
        start, end = (int(part, 16) for part in fields[0].split(b"-"))
        found.append((name.startswith(b"/"), end - start, start, end))
    return [(start, end) for *_, start, end in sorted(found)]


def _cached(pid: int) -> Iterator[bytes]:
    """Yield the files in the compilers' caches that a process uses, as it sees them."""
    environment = procfs.environment(pid, _VARIABLES)
    home = environment.get(_HOME)
    places = [
        environment.get(variable) or (f"{home}/{default}" if home and default else None)
        for variable, default in _CACHES
    ]
    left = _MAX_FILES
    for place in dict.fromkeys(p for p in places if p and p.startswith("/")):
        for directory, _, files in os.walk(f"/proc/{pid}/root{place}"):
            left -= 1 + len(files)
            if left < 0:
                return
            for name in files:
                if (data := _contents(os.path.join(directory, name))) is not None:
                    yield data


def _contents(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_MAX_FILE)
    except OSError:
        return None
    finally:
        os.close(descriptor)
