"""Which kernel does a host function, a kernel handle or a call site of a CUDA program stand for?

nvcc gives every kernel a host function, its stub, whose address the program passes to `cudaLaunchKernel`, and writes a
constructor that registers (stub, kernel name) with the runtime. Those registrations are constants in the machine code:
read there, they give every name of a file that is stripped, and of a process that runs already.

Programs built since CUDA 12.4 pass a handle instead, which the runtime writes into a static variable once:
`__cudaGetKernel(&variable, stub)`. The variable's address is a constant too, so a process's handles can be read from its
memory; and where that fails, the function that launches names the stub itself.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..elf import EM_AARCH64, EM_X86_64, PT_LOAD, ElfFile
from ..errors import ElfError
from .constants import Call, calls
from .functions import FunctionTable, Span, code_spans, read_code
from .loaded_pointers import LoadedPointers
from .references import find_references

MAX_KERNELS = 1_000_000
MAX_NAME = 4_096

_CHUNK = 1 << 20
_NO_THREAD_LIMIT = 0xFFFF_FFFF
_PF_W = 2
# How the argument thread_limit, -1, of every __cudaRegisterFunction that nvcc and clang write is set:
# `mov r8d, -1`, `or r8d, -1`, `mov r8, -1`; `mov w4, #-1`.
_THREAD_LIMIT = {
    EM_X86_64: re.compile(rb"\x41\xb8\xff\xff\xff\xff|\x41\x83\xc8\xff|\x49\xc7\xc0\xff\xff\xff\xff"),
    EM_AARCH64: re.compile(rb"\x04\x00\x80\x12"),
}
_LAST_CALL = 256
_NEAR = 64  # bytes from the first instruction that prepares a call to the last
# What puts the address of a variable into a register: `lea reg, [rip + d]`, or `mov reg, imm32` in fixed code.
_TAKES_ADDRESS = re.compile(rb"(?=[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]....|[\xb8-\xbf]....)", re.DOTALL)
_LEA = 0x8D
_MAX_DECODED = 64 << 20  # torch's kernels take 2 MiB; at most a minute for a file that is made to cost time
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class StubMap:
    """The kernels of one file by link-time address; the tuples are parallel and sorted by address."""

    stubs: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    handle_variables: tuple[int, ...] = ()
    handle_stubs: tuple[int, ...] = ()
    """The stub whose kernel's handle the variable of the same index holds."""
    user_starts: tuple[int, ...] = ()
    """Where the functions begin that mention stubs, sorted; one entry for each mention."""
    user_ends: tuple[int, ...] = ()
    user_stubs: tuple[int, ...] = ()
    skipped: int = 0
    """Registrations that were not understood or were beyond MAX_KERNELS, and functions that could not be read."""

    def __len__(self) -> int:
        return len(self.stubs)

    def name_of(self, stub: int) -> str | None:
        """Return the kernel name that the stub at this link-time address was registered with."""
        at = bisect.bisect_left(self.stubs, stub)
        return self.names[at] if at < len(self.stubs) and self.stubs[at] == stub else None

    def handles(self) -> Iterator[tuple[int, str]]:
        """Yield (address of a handle variable, kernel name): what a process has at it is the kernel's handle."""
        for variable, stub in zip(self.handle_variables, self.handle_stubs, strict=True):
            name = self.name_of(stub)
            if name is not None:
                yield variable, name

    def names_used_at(self, return_address: int) -> frozenset[str]:
        """Return the kernels whose stubs the function around a call mentions: with exactly one, that was launched."""
        # The call may be the function's last instruction: the address behind it belongs to the next one.
        address = return_address - 1
        last = bisect.bisect_right(self.user_starts, address)
        if last == 0:
            return frozenset()
        start = self.user_starts[last - 1]
        first = bisect.bisect_left(self.user_starts, start)
        found = (self.name_of(self.user_stubs[at]) for at in range(first, last) if address < self.user_ends[at])
        return frozenset(name for name in found if name is not None)


def read_stub_map(elf: ElfFile) -> StubMap:
    """Read the kernels that a file registers; an empty map for a file without, or for another machine."""
    if elf.machine not in _THREAD_LIMIT:
        return StubMap()
    return _StubReader(elf).read()


def clean_name(raw: bytes) -> str:
    """Return a kernel name as text that is safe to print and to send: escaped, and cut where it is absurdly long."""
    text = _UNPRINTABLE.sub(lambda m: m[0].encode("unicode_escape").decode(), raw[:MAX_NAME].decode("latin-1"))
    return text if len(raw) <= MAX_NAME and len(text) <= MAX_NAME else text[: MAX_NAME - 3] + "..."


class _StubReader:
    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._functions = FunctionTable(elf)
        self._pointers = LoadedPointers(elf)
        self._code = code_spans(elf)
        self._budget = _MAX_DECODED
        self._unread = 0
        self._variables = [
            Span(s.vaddr, s.vaddr + s.mem_size) for s in elf.segments if s.type == PT_LOAD and s.flags & _PF_W
        ]

    def read(self) -> StubMap:
        names: dict[int, str] = {}
        skipped = 0
        constructors = self._functions_with(self._thread_limits())
        for span, last in constructors:
            for call in self._calls(span, last):
                if call.arguments[4] != _NO_THREAD_LIMIT:
                    continue
                stub, name = self._stub(call), self._name(call)
                if stub is not None and name is not None and len(names) < MAX_KERNELS:
                    names[stub] = name
                elif name is not None:
                    skipped += 1
        stubs = sorted(names)
        handles, users = self._uses(stubs, {span.start for span, _ in constructors})
        return StubMap(
            tuple(stubs),
            tuple(names[stub] for stub in stubs),
            tuple(variable for variable, _ in handles),
            tuple(stub for _, stub in handles),
            tuple(span.start for span, _ in users),
            tuple(span.end for span, _ in users),
            tuple(stub for _, stub in users),
            skipped + self._unread,
        )

    def _thread_limits(self) -> Iterator[int]:
        for vaddr, code in read_code(self._elf, _CHUNK, 8):
            for match in _THREAD_LIMIT[self._elf.machine].finditer(code):
                if match.start() < _CHUNK:
                    yield vaddr + match.start()

    def _functions_with(self, sites: Iterable[int]) -> list[tuple[Span, int]]:
        """Return each function that holds sites, with the address of its last one."""
        last: dict[int, tuple[Span, int]] = {}
        span: Span | None = None
        for site in sites:
            if span is None or site not in span:
                span = self._functions.containing(site)
            if span is not None:
                last[span.start] = (span, site)
        return list(last.values())

    def _calls(self, span: Span, last: int) -> Iterator[Call]:
        code = self._code_at(span.start, min(span.end, last + _LAST_CALL))
        yield from calls(self._elf.machine, code, span.start, self._pointers.read)

    def _code_at(self, start: int, end: int) -> bytes:
        """Read code, or nothing where there is none or too much has been read."""
        self._budget -= end - start
        if self._budget >= 0:
            try:
                offset = self._elf.to_offset(start)
                return self._elf.read(offset, end - start)
            except ElfError:
                pass
        self._unread += 1
        return b""

    def _stub(self, call: Call) -> int | None:
        """Read the second argument of __cudaRegisterFunction(module, stub, name, name, -1, ...)."""
        stub = call.arguments[1]
        return stub if stub is not None and any(stub in span for span in self._code) else None

    def _name(self, call: Call) -> str | None:
        """Read the third and fourth argument, which are the same string."""
        name = call.arguments[3]
        return self._string(name) if name and name == call.arguments[2] else None

    def _string(self, vaddr: int) -> str | None:
        try:
            start = self._elf.to_offset(vaddr)
        except ElfError:
            return None
        raw = self._elf.peek(start, MAX_NAME + 1)
        text = raw.partition(b"\0")[0]
        return clean_name(text) if text else None

    def _uses(self, stubs: list[int], constructors: set[int]) -> tuple[list[tuple[int, int]], list[tuple[Span, int]]]:
        """Find who mentions the stubs: the variables that hold their handles, and the functions that launch them."""
        import numpy as np

        targets = np.array(stubs, np.int64)
        sites, mentioned = find_references(self._elf, targets)
        slots, held = self._pointers.slots_of(targets)
        if len(slots):
            loads, read = find_references(self._elf, slots, loads=True)
            sites = np.concatenate([sites, loads])
            mentioned = np.concatenate([mentioned, held[np.searchsorted(slots, read)]])
        users: dict[tuple[int, int], tuple[Span, int]] = {}
        mentions: list[tuple[Span, int]] = []
        span: Span | None = None
        for site, stub in sorted(zip(_ints(sites), _ints(mentioned), strict=True)):
            if span is None or site not in span:
                span = self._functions.containing(site)
            if span is not None and span.start not in constructors:
                users[span.start, stub] = (span, stub)
                mentions.append((span, site))
        return self._handles(mentions, set(stubs)), [users[key] for key in sorted(users)]

    def _imports(self, name: bytes) -> bool:
        section = self._elf.section(".dynstr")
        return section is not None and b"\0" + name + b"\0" in self._elf.section_data(section)

    def _handles(self, mentions: Iterable[tuple[Span, int]], stubs: set[int]) -> list[tuple[int, int]]:
        """Find the calls of __cudaGetKernel(&variable, stub), by their arguments."""
        by_callee: dict[str, dict[int, int]] = {}
        if self._imports(b"cudaLaunchKernel") and not self._imports(b"__cudaGetKernel"):
            return []
        for span, site in mentions:
            for call in self._calls_near(span, site):
                variable, stub = call.arguments[:2]
                if variable is not None and stub in stubs and self._is_variable(variable):
                    by_callee.setdefault(call.target, {})[variable] = stub
                    break
        # Other functions take (pointer, stub) as well, hardly ever with a static variable: the commonest callee it is.
        return sorted(max(by_callee.values(), key=len).items()) if by_callee else []

    def _calls_near(self, span: Span, site: int) -> Iterator[Call]:
        """Yield the call that an instruction which mentions a stub belongs to, read from each place where it may begin.

        A library of PyTorch's has 24,000 functions with one: only the instructions around it are decoded.
        """
        first, last = max(span.start, site - _NEAR), min(span.end, site + _NEAR)
        code = self._code_at(first, last)
        for start in self._argument_starts(code, first, site):
            yield from itertools.islice(calls(self._elf.machine, code[start - first :], start, self._pointers.read), 1)

    def _argument_starts(self, code: bytes, first: int, site: int) -> Iterator[int]:
        """Yield the instructions from which on a call's arguments may be put together, `site` the last of them."""
        if self._elf.machine == EM_AARCH64:
            yield site - (site - first) // 4 * 4
            return
        for match in _TAKES_ADDRESS.finditer(code, 0, site - first):
            at = match.start()
            relative = code[at + 1] == _LEA
            operand = at + 3 if relative else at + 1
            pointed = int.from_bytes(code[operand : operand + 4], "little", signed=True)
            if self._is_variable(first + at + 7 + pointed if relative else pointed):
                yield first + at
        yield site

    def _is_variable(self, address: int) -> bool:
        return any(address in span for span in self._variables)


def _ints(array: Any) -> list[int]:
    return list(map(int, array.tolist()))
