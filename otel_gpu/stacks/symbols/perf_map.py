"""Names of functions that a JIT made, as `/tmp/perf-PID.map` has them: a line for each, with its address, size and name.

Node (`--perf-basic-prof`), Java (`-XX:+DumpPerfMapAtExit`, perf-map-agent), .NET and CPython (`-X perf`) write it. Read by a
child without rights, which keeps what it has read and goes on from there: the file grows while the program runs.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Sequence

import msgspec

from ...sandbox.confinement import Limits
from ...sandbox.work import OpenFile, service

PERF_MAP = Limits(answer_s=5.0, cpu_s=60, memory_bytes=1 << 30, answer_bytes=16 << 20)
_MAX_BYTES = 64 << 20
"""Of a larger file the beginning is left out: what was made last stands at the end."""
_BLOCK = 1 << 20
MAX_NAME = 1024
_MAX_FUNCTIONS = 1 << 18
_HEAD = 64
_MAX_OVERLAPS = 16
"""Functions that begin before an address and are looked at for one that holds it: memory is used again for others."""
_LINE = re.compile(rb"^(?:0x)?([0-9a-fA-F]{1,16}) (?:0x)?([0-9a-fA-F]{1,16}) ([^\n]+)\n", re.MULTILINE)


class MadeAddress(msgspec.Struct, frozen=True):
    """An address in code made at run time."""

    address: int
    is_return: bool
    """Whether it is one to return to: such a one is looked up by the call before it."""


@service(type(None), list[MadeAddress], list[str])
def perf_map(files: Sequence[OpenFile], _: None) -> Callable[[list[MadeAddress]], list[str]]:
    """Return what names addresses by a map; an empty name where it has none."""
    functions = PerfMap(files[0].read, max(files[0].size - _MAX_BYTES, 0))

    def names(asked: list[MadeAddress]) -> list[str]:
        functions.read_on()
        return [functions.name(place.address - place.is_return) for place in asked]

    return names


class PerfMap:
    """The functions of one map."""

    def __init__(self, read: Callable[[int, int], bytes], begin: int = 0) -> None:
        """`read` returns what stands at an offset, less where the file ends; what is before `begin` is left out."""
        self._read = read
        self._begin = begin
        self._forget(begin)

    def _forget(self, begin: int) -> None:
        self._at = begin
        # Of a line whose beginning is left out nothing is believed.
        self._left = b"-" if begin else b""
        self._head = b""
        self._functions: dict[int, tuple[int, int, bytes]] = {}
        """By first address: which came when, size, and name."""
        self._starts: list[int] = []
        self._came = 0

    def read_on(self) -> None:
        """Take what was written since."""
        if self._head and self._read(self._begin, len(self._head)) != self._head:
            self._forget(0)  # it is another program's by now
            self._begin = 0
        size = len(self._functions)
        for _ in range(_MAX_BYTES // _BLOCK):
            data = self._read(self._at, _BLOCK)
            if not data:
                break
            self._head = self._head or data[:_HEAD]
            self._at += len(data)
            self._take(self._left + data)
        if len(self._functions) != size or not self._starts:
            self._starts = sorted(self._functions)

    def _take(self, data: bytes) -> None:
        whole = data.rfind(b"\n") + 1
        self._left = data[whole:][:_BLOCK]
        for line in _LINE.finditer(data, 0, whole):
            start = int(line[1], 16)
            # The newest of an address counts, also as the last that goes.
            self._functions.pop(start, None)
            self._came += 1
            self._functions[start] = (self._came, int(line[2], 16), line[3][:MAX_NAME])
        while len(self._functions) > _MAX_FUNCTIONS:
            del self._functions[next(iter(self._functions))]
            self._starts = []

    def name(self, address: int) -> str:
        """Return the newest function that holds an address; empty where none does."""
        n = bisect.bisect_right(self._starts, address)
        here = ((start, *self._functions[start]) for start in self._starts[max(n - _MAX_OVERLAPS, 0) : n])
        held = [(came, name) for start, came, size, name in here if address < start + size]
        return max(held)[1].decode("utf-8", "replace") if held else ""
