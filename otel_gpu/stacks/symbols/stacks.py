"""What are these addresses and code objects called? Raw frames of the kernel become frames of a profile."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence

from ...bpf.abi.stacks import FRAME_CHECKSUM_A, FRAME_CHECKSUM_B, FRAME_KIND_SHIFT, FRAME_OWNER_SHIFT, Stop
from ...bpf.abi.stacks import FrameKind as RawFrameKind
from ...signals.profiles import FileMapping, Frame, FrameKind, Stack, truncation
from ...signals.structs import Frozen, Record
from ..cpython.code import CodeAddress, PythonFrame, Unresolved
from ..cpython.layout import PythonLayout
from ..cpython.names import PythonNames
from ..unwind.address_space import RegionIndex
from ..unwind.loader import WalkedProcess
from .file_names import FileNames, NamedFile
from .interpreter_internals import is_internal
from .made_names import MadeNames
from .perf_map import MadeAddress
from .vdso import vdso_frame

_CODE_MASK = (1 << FRAME_CHECKSUM_A) - 1
_SIGN = 1 << 31
_FRAME = struct.Struct("<QQ")
_MAX_STACKS = 20_000

STOPS: dict[int, str] = {
    Stop.NONE: "unknown reason",
    Stop.FULL: "deeper than the walker follows",
    Stop.NO_MAPPING: "an address in no known mapping",
    Stop.NO_TABLE: "no unwinding table for the file yet",
    Stop.NO_ROW: "no unwinding information for an address",
    Stop.UNSUPPORTED: "an unwinding rule that is not supported",
    Stop.UNREADABLE: "stack memory could not be read",
    Stop.STUCK: "the stack pointer would not rise",
    Stop.CHAIN_ENDED: "more interpreter activations than Python frames",
    Stop.FRAME_POINTER: "code without tables and frame pointers",
    Stop.UNKNOWN_PROCESS: "a process that is still being learnt",
    Stop.NO_CODE: "a return address that leads to no code",
    Stop.STATES: "more interpreters and thread states than are looked at",
    Stop.NO_OWNER: "an interpreter activation that no thread state owns",
    Stop.FRAMES_LEFT: "fewer interpreter activations than Python frames",
}
"""For people: of stacks that are not complete."""

_MADE = Frame(FrameKind.NATIVE, "[code made at run time]")
"""Of a JIT that tells nobody what it made: without a file, and elsewhere in every run."""
_NOTHING = Frame(FrameKind.MARKER)
"""Stands for a Python frame that is no call, and is not shown."""


class _Place(Frozen):
    """A frame whose name is looked up."""

    file: NamedFile
    address: int
    """In the file."""
    is_return: bool

    def frame(self) -> Frame | None:
        """Return the frame; None as long as its name is not known."""
        return self.file.frame(self.address, is_return=self.is_return)

    def unnamed(self) -> Frame:
        """Return the frame without a name."""
        return self.file.unnamed(self.address, is_return=self.is_return)


class RawStack(Record, eq=False):
    """A stack, leaf first, of which the names of some functions may still be looked up."""

    frames: tuple[Frame | _Place, ...]
    stop: int
    named: Stack | None = None


class StackNamer:
    """Names the stacks of one process. Owned by one thread.

    Code objects may be freed any moment, so what they are called is asked when a stack arrives (`read`); what functions
    of files are called can wait, and so does the stack (`name`).
    """

    def __init__(self, process: WalkedProcess, files: FileNames, python: PythonNames, made: MadeNames) -> None:
        self._process = process
        self._files = files
        self._codes = python
        self._made_names = made
        self._regions = process.regions
        self._index = RegionIndex(self._regions)
        self._known: OrderedDict[tuple[bytes, int], RawStack] = OrderedDict()
        self._native: dict[tuple[int, int], Frame | _Place] = {}
        self._python: dict[tuple[int, int], Frame] = {}
        self._made: dict[tuple[int, int], Frame] = {}
        self.unresolved: dict[str, int] = {}

    def forget_changing(self) -> None:
        """Forget what was named of a program's memory: it may have been freed, and given to other code."""
        self._known.clear()
        self._python.clear()
        self._made.clear()
        self._codes.doubt()

    def read(self, taken: Sequence[tuple[bytes, int]]) -> list[RawStack]:
        """Take stacks as the kernel has them, each with why it ends, and begin to look up what their functions are called."""
        if self._regions is not self._process.regions:
            self._regions = self._process.regions
            self._index = RegionIndex(self._regions)
            self._native.clear()
            self._known.clear()
        fresh = {frames for frames, stop in taken if (frames, stop) not in self._known}
        pairs = {pair for frames in fresh for pair in _FRAME.iter_unpack(frames)}
        self._read_python(pairs - self._python.keys())
        self._read_made(pairs - self._made.keys())
        stacks = [self._known.get(key) or self._read(*key) for key in taken]
        if fresh:
            self._files.look_up(self._process.pid)
        while len(self._known) > _MAX_STACKS:
            self._known.popitem(last=False)
        return stacks

    def name(self, stack: RawStack, *, at_once: bool = False) -> Stack | None:
        """Return a stack with its names; None as long as some are not known, unless it is wanted `at_once`."""
        if stack.named is not None:
            return stack.named
        missing = [part for part in stack.frames if isinstance(part, _Place) and part.frame() is None]
        if missing and not at_once:
            if sum(self._want(place) for place in missing):
                self._files.look_up(self._process.pid)
            return None
        named = [part if isinstance(part, Frame) else part.frame() or part.unnamed() for part in stack.frames]
        if any(f.kind is FrameKind.CPYTHON for f in named):
            own = self._interpreter()
            named = [f for f in named if f.mapping is None or f.mapping.path != own or not is_internal(f.function)]
        if stack.stop != Stop.OUTERMOST:
            named.append(truncation(STOPS.get(stack.stop, STOPS[Stop.NONE])))
        stack.named = tuple(named)
        return stack.named

    def _read(self, raw: bytes, stop: int) -> RawStack:
        parts: list[Frame | _Place] = []
        for pair in _FRAME.iter_unpack(raw):
            part = self._native.get(pair) or self._python.get(pair) or self._part(pair)
            if isinstance(part, _Place):
                if (frame := part.frame()) is not None:
                    part = self._native[pair] = frame
                else:
                    self._want(part)
            if part is not _NOTHING:
                parts.append(part)
        stack = self._known[raw, stop] = RawStack(tuple(parts), stop)
        return stack

    def _interpreter(self) -> str | None:
        python = self._process.python
        region = self._index.at(python.eval_ranges[0][0]) if python is not None and python.eval_ranges else None
        return region.path if region is not None else None

    def _part(self, pair: tuple[int, int]) -> Frame | _Place:
        a, b = pair
        kind = b >> FRAME_KIND_SHIFT
        if kind == RawFrameKind.MADE:
            return self._made.get(pair, _MADE)
        if kind == RawFrameKind.PYTHON:
            return self._lost(Unresolved.UNREADABLE)
        if len(self._native) > _MAX_STACKS:
            self._native.clear()
        part = self._native[pair] = self._function(a, is_return=kind != RawFrameKind.EXACT)
        return part

    def _read_python(self, pairs: set[tuple[int, int]]) -> None:
        """Learn what code objects are called."""
        asked = [pair for pair in pairs if pair[1] >> FRAME_KIND_SHIFT == RawFrameKind.PYTHON]
        if not asked:
            return
        python = self._process.python
        if python is None:
            found: list[PythonFrame | Unresolved] = [Unresolved.GONE] * len(asked)
        else:
            found = self._codes.names(python, [_code_address(pair, python.layout) for pair in asked])
        for pair, code in zip(asked, found, strict=True):
            if isinstance(code, PythonFrame):
                frame = Frame(FrameKind.CPYTHON, code.qualname, code.filename, code.line or code.first_line)
            else:
                frame = _NOTHING if code is Unresolved.INCOMPLETE else self._lost(code)
            self._python[pair] = frame

    def _read_made(self, pairs: set[tuple[int, int]]) -> None:
        """Learn what code is called that was made at run time."""
        asked = [pair for pair in pairs if pair[1] >> FRAME_KIND_SHIFT == RawFrameKind.MADE]
        if not asked:
            return
        names = self._made_names.names([MadeAddress(address, bool(b & 1)) for address, b in asked])
        self._made.update(
            (pair, Frame(FrameKind.NATIVE, name) if name else _MADE) for pair, name in zip(asked, names, strict=True)
        )

    def _lost(self, why: Unresolved) -> Frame:
        self.unresolved[why.name.lower()] = self.unresolved.get(why.name.lower(), 0) + 1
        return Frame(FrameKind.CPYTHON, f"[unreadable Python frame: {why.name.lower()}]")

    def _function(self, address: int, *, is_return: bool) -> Frame | _Place:
        region = self._index.at(address - is_return)
        if region is None:
            return Frame(FrameKind.NATIVE, address=address)
        bias = self._process.biases.get(region)
        if bias is None:
            return Frame(FrameKind.NATIVE, address=address)
        if region.is_vdso:
            return vdso_frame(address - bias, is_return=is_return)
        file = self._files.of(self._process, region)
        if file is None:
            return Frame(FrameKind.NATIVE, mapping=FileMapping(region.path), address=address - bias)
        return _Place(file, address - bias, is_return)

    def _want(self, place: _Place) -> bool:
        return self._files.want(place.file, place.address, is_return=place.is_return)


def _code_address(pair: tuple[int, int], layout: PythonLayout) -> CodeAddress:
    """Take a Python frame apart as the kernel packs it."""
    a, b = pair
    code, instr = a & _CODE_MASK, b & 0xFFFFFFFF
    if layout.frame_instr_size != 4:
        instr = code + layout.code_bytecode + (instr ^ _SIGN) - _SIGN
    return CodeAddress(
        code, instr, b >> FRAME_OWNER_SHIFT & 0xF, a >> FRAME_CHECKSUM_A << 16 | b >> FRAME_CHECKSUM_B & 0xFFFF
    )
