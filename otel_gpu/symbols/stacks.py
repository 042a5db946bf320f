"""What are these addresses and code objects called? Raw frames of the kernel become frames of a profile."""

from __future__ import annotations

import logging
import struct
from collections import OrderedDict

from ..elf import PT_LOAD, ElfFile
from ..errors import OtelGpuError, ProcessGoneError
from ..printable import escaped
from ..profiles import FileMapping, Frame, FrameKind, Stack, truncation
from ..unwind.address_space import Region, RegionIndex, open_elf
from ..unwind.loader import WalkedProcess
from ..unwind.python_process import PythonProcess
from .build_id import build_id
from .demangle import demangle
from .glue import is_glue
from .native import NativeSymbols
from .process_memory import ProcessMemory
from .python import CodeObjects, PythonFrame, Unresolved

_log = logging.getLogger(__name__)

NATIVE, PYTHON, EXACT, MADE = 1, 2, 3, 4
_KIND_SHIFT, _OWNER_SHIFT, _CHECKSUM_SHIFT = 56, 48, 32
_CODE_BITS = 48
_CODE_MASK = (1 << _CODE_BITS) - 1
_SIGN = 1 << 31
_FRAME = struct.Struct("<QQ")
_MAX_FILES = 512
_MAX_STACKS = 20_000

STOPS = {
    0: "unknown reason",
    2: "deeper than the walker follows",
    3: "an address in no known mapping",
    4: "no unwinding table for the file yet",
    5: "no unwinding information for an address",
    6: "an unwinding rule that is not supported",
    7: "stack memory could not be read",
    8: "the stack pointer would not rise",
    9: "more interpreter activations than Python frames",
    10: "code without tables and frame pointers",
    11: "a process that is still being learnt",
    12: "a return address that leads to no code",
    13: "more interpreters and thread states than are looked at",
    14: "an interpreter activation that no thread state owns",
    15: "fewer interpreter activations than Python frames",
}
"""ebpf/abi.h: enum stop; 1 is a complete stack."""
COMPLETE = 1
NO_MAPPING, NO_TABLE = 3, 4

_MADE = Frame(FrameKind.NATIVE, "[code made at run time]")
"""Of a JIT: without a file, without a name, and elsewhere in every run."""
_NOTHING = Frame(FrameKind.MARKER)
"""Stands for a Python frame that is no call, and is not shown."""


class StackNamer:
    """Names the stacks of one process. Owned by one thread."""

    def __init__(self, process: WalkedProcess, files: FileNames) -> None:
        self._process = process
        self._files = files
        self._regions = process.regions
        self._index = RegionIndex(self._regions)
        self._codes: CodeObjects | None = None
        self._codes_of: PythonProcess | None = None
        self._memory: ProcessMemory | None = None
        self._known: OrderedDict[tuple[bytes, int], Stack] = OrderedDict()
        self._native: dict[tuple[int, int], Frame] = {}
        self._python: dict[tuple[int, int], Frame] = {}
        self.unresolved: dict[str, int] = {}

    def close(self) -> None:
        """Release the process's memory; idempotent."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def stack(self, raw: bytes, stop: int) -> Stack:
        """Name a stack, leaf first: `raw` are the kernel's frames, `stop` why they end."""
        if self._regions is not self._process.regions:
            self._regions = self._process.regions
            self._index = RegionIndex(self._regions)
            self._native.clear()
            self._known.clear()
        key = (raw, stop)
        if (known := self._known.get(key)) is not None:
            return known
        native, python = self._native, self._python
        named = []
        for pair in _FRAME.iter_unpack(raw):
            frame = native.get(pair) or python.get(pair) or self._name(pair)
            if frame is not _NOTHING:
                named.append(frame)
        if any(f.kind is FrameKind.CPYTHON for f in named):
            own = self._interpreter()
            named = [f for f in named if f.mapping is None or f.mapping.path != own or not is_glue(f.function)]
        if stop != COMPLETE:
            named.append(truncation(STOPS.get(stop, STOPS[0])))
        stack = self._known[key] = tuple(named)
        if len(self._known) > _MAX_STACKS:
            self._known.popitem(last=False)
        return stack

    def forget_python(self) -> None:
        """Forget named stacks: code objects may have been freed and their addresses given to others."""
        self._known.clear()
        self._python.clear()
        if self._codes is not None:
            self._codes.doubt()

    def _interpreter(self) -> str | None:
        python = self._process.python
        region = self._index.at(python.eval_ranges[0][0]) if python is not None and python.eval_ranges else None
        return region.path if region is not None else None

    def _name(self, pair: tuple[int, int]) -> Frame:
        a, b = pair
        kind = b >> _KIND_SHIFT
        if kind == MADE:
            return _MADE
        if kind == PYTHON:
            checksum = a >> _CODE_BITS << 16 | b >> _CHECKSUM_SHIFT & 0xFFFF
            found = self._code(a & _CODE_MASK, b & 0xFFFFFFFF, b >> _OWNER_SHIFT & 0xF, checksum)
            if isinstance(found, Unresolved) and found is not Unresolved.INCOMPLETE:
                return self._lost(found)
            frame = _NOTHING
            if isinstance(found, PythonFrame):
                frame = Frame(FrameKind.CPYTHON, found.qualname, found.filename, found.line or found.first_line)
            self._python[pair] = frame
            return frame
        if len(self._native) > _MAX_STACKS:
            self._native.clear()
        frame = self._native[pair] = self._function(a, is_return=kind != EXACT)
        return frame

    def _code(self, code: int, instr: int, owner: int, checksum: int) -> PythonFrame | Unresolved:
        python = self._process.python
        if python is None:
            return Unresolved.GONE
        if self._codes is None or self._codes_of is not python:
            self.close()
            try:
                self._memory = ProcessMemory(self._process.pid)
            except (OtelGpuError, OSError):
                return Unresolved.GONE
            self._codes = CodeObjects(self._memory, python.layout, python.code_type)
            self._codes_of = python
        if python.layout.frame_instr_size != 4:
            instr = code + python.layout.code_bytecode + (instr ^ _SIGN) - _SIGN
        return self._codes.resolve(code, instr, owner=owner, checksum=checksum)

    def _lost(self, why: Unresolved) -> Frame:
        self.unresolved[why.name.lower()] = self.unresolved.get(why.name.lower(), 0) + 1
        return Frame(FrameKind.CPYTHON, f"[unreadable Python frame: {why.name.lower()}]")

    def _function(self, address: int, *, is_return: bool) -> Frame:
        region = self._index.at(address - is_return)
        if region is None:
            return Frame(FrameKind.NATIVE, address=address)
        self._process.met.add(region)
        bias = self._process.biases.get(region)
        if bias is None:
            return Frame(FrameKind.NATIVE, address=address)
        file = self._files.of(self._process, region)
        if file is None:
            return Frame(FrameKind.NATIVE, mapping=FileMapping(region.path), address=address - bias)
        return file.frame(address - bias, is_return=is_return)


class NamedFile:
    """The symbols of one file."""

    def __init__(self, elf: ElfFile, path: str) -> None:
        ids = build_id(elf)
        load = next((s for s in elf.segments if s.type == PT_LOAD and s.flags & 1), None)
        self.mapping = FileMapping(
            path,
            ids.gnu or "",
            ids.htlhash,
            load.vaddr if load else 0,
            load.vaddr + load.mem_size if load else 0,
            load.offset if load else 0,
        )
        self._symbols = NativeSymbols(elf)
        self._frames: dict[tuple[int, bool], Frame] = {}

    def frame(self, address: int, *, is_return: bool) -> Frame:
        """Name a link-time address; a return address is looked up by the call before it."""
        key = (address, is_return)
        if key not in self._frames:
            if len(self._frames) > _MAX_STACKS:
                self._frames.clear()
            symbol = self._symbols.resolve(address - is_return)
            name = demangle(symbol.name) if symbol is not None else ""
            self._frames[key] = Frame(FrameKind.NATIVE, name, mapping=self.mapping, address=address - is_return)
        return self._frames[key]

    def close(self) -> None:
        self._symbols.close()


class FileNames:
    """The files of all processes, by the file itself. Owned by one thread."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[int, int, int] | str, NamedFile | None] = OrderedDict()

    def of(self, process: WalkedProcess, region: Region) -> NamedFile | None:
        """Return the symbols behind a region; None where the file cannot be read."""
        key = region.file if region.file is not None else region.path
        if key not in self._files:
            try:
                self._files[key] = NamedFile(open_elf(process.pid, region, process.root), region.path)
            except (ProcessGoneError, FileNotFoundError, ProcessLookupError) as e:
                # Another process may still have it.
                _log.debug("%s has no names: %s", escaped(region.path), e)
                return None
            except (OtelGpuError, OSError) as e:
                _log.debug("%s has no names: %s", escaped(region.path), e)
                self._files[key] = None
            if len(self._files) > _MAX_FILES:
                _, old = self._files.popitem(last=False)
                if old is not None:
                    old.close()
        return self._files[key]

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()
