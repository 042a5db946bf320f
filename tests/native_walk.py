"""Where is a stopped thread, according to our unwinding tables? The kernel walker's rules once more, in Python.

It reads the registers by ptrace and the stack from /proc/PID/mem. Only our own children are traced.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from otel_gpu.bpf.abi.unwinding import RowKind
from otel_gpu.sandbox.elf import PT_LOAD, ElfFile
from otel_gpu.stacks.eh_frame.rows import RBP_AT_RBP, UnwindError, UnwindTable
from otel_gpu.stacks.eh_frame.tables import compile_table

_GETREGS, _DETACH, _SEIZE, _INTERRUPT = 12, 17, 0x4206, 0x4207
_WALL = 0x40000000
_REGISTERS = 27
_RBP, _RIP, _RSP = 4, 16, 19
# struct rt_sigframe begins, at the rsp of the trampoline, with ucontext: gregs from 40 on.
_SIGNAL_RBP, _SIGNAL_RSP, _SIGNAL_RIP = 120, 160, 168
_MAX_FRAMES = 500


@dataclass(frozen=True)
class Frame:
    """One frame: which file, and the link-time address in it (of the call, except where the thread stands)."""

    path: str
    address: int
    kind: RowKind


@dataclass
class Stack:
    """The frames of a thread, innermost first, and why the walk ended."""

    end: str = ""
    frames: list[Frame] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return self.end == "OUTERMOST"


class NativeWalker:
    """Walks threads of one process; keeps its tables, so one walker may serve several processes."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[ElfFile, UnwindTable, int] | str] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._libc.ptrace.restype = ctypes.c_long
        self.kinds: Counter[RowKind] = Counter()

    def walk(self, pid: int, tid: int) -> Stack:
        """Stop a thread, walk its stack, and let it go on."""
        with self._stopped(tid) as registers, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            stack = Stack()
            try:
                stack.end = self._walk(pid, memory.fileno(), registers, stack.frames)
            except OSError as e:
                stack.end = f"unreadable: {e}"
        self.kinds.update(frame.kind for frame in stack.frames)
        return stack

    @contextmanager
    def _stopped(self, tid: int) -> Iterator[list[int]]:
        self._ptrace(_SEIZE, tid)
        try:
            self._ptrace(_INTERRUPT, tid)
            os.waitpid(tid, _WALL)
            registers = (ctypes.c_uint64 * _REGISTERS)()
            self._ptrace(_GETREGS, tid, ctypes.addressof(registers))
            yield list(registers)
        finally:
            self._ptrace(_DETACH, tid)

    def _ptrace(self, request: int, tid: int, data: int | None = None) -> None:
        if self._libc.ptrace(request, tid, None, data):
            number = ctypes.get_errno()
            raise OSError(number, f"ptrace {request:#x} of {tid}: {os.strerror(number)}")

    def _walk(self, pid: int, memory: int, registers: list[int], frames: list[Frame]) -> str:
        def read(address: int) -> int:
            raw = os.pread(memory, 8, address & (1 << 63) - 1)
            if len(raw) < 8:
                raise OSError(f"no memory at {address:#x}")
            return int(struct.unpack("<Q", raw)[0])

        pc, sp, bp = registers[_RIP], registers[_RSP], registers[_RBP]
        back = 0
        maps = _maps(pid)
        starts = [m[0] for m in maps]
        while len(frames) < _MAX_FRAMES:
            look = pc - back
            low, high, flags, offset, path = maps[bisect.bisect_right(starts, look) - 1]
            if not low <= look < high or "x" not in flags:
                return f"{look:#x} is no code"
            known = self._table(path, memory, low, high)
            if isinstance(known, str):
                return known
            elf, table, base = known
            vaddr = look - low if path == "[vdso]" else elf.to_vaddr(look - low + offset)
            row = table.find(vaddr - base)
            if row is None:
                return f"{path}: no row for {vaddr:#x}"
            _, cfa_offset, number, saved = row.tolist()
            kind = RowKind(number)
            frames.append(Frame(path, vaddr, kind))
            match kind:
                case RowKind.OUTERMOST | RowKind.END | RowKind.UNSUPPORTED:
                    return kind.name
                case RowKind.SIGNAL:
                    pc, bp, sp, back = read(sp + _SIGNAL_RIP), read(sp + _SIGNAL_RBP), read(sp + _SIGNAL_RSP), 0
                    continue
                case RowKind.SP:
                    cfa = sp + cfa_offset
                case RowKind.SP_LARGE:
                    cfa = sp + 8 * (cfa_offset & 0xFFFF)
                case RowKind.FP:
                    cfa = bp + cfa_offset
                case RowKind.PLT:
                    cfa = sp + 8 + (8 if pc & 15 >= cfa_offset else 0)
                case RowKind.DEREF_SP | RowKind.DEREF_FP:
                    register = sp if kind is RowKind.DEREF_SP else bp
                    cfa = read(register + 8 * (cfa_offset >> 4)) + 8 * (cfa_offset & 15)
            if saved:
                bp = read(bp if saved == RBP_AT_RBP else cfa + 8 * saved)
            pc, sp, back = read(cfa - 8), cfa, 1
        return "too many frames"

    def _table(self, path: str, memory: int, low: int, high: int) -> tuple[ElfFile, UnwindTable, int] | str:
        if path not in self._tables:
            try:
                image = os.pread(memory, high - low, low) if path == "[vdso]" else b""
                elf = ElfFile.from_bytes(image, path) if image else ElfFile(path)
                base = min(s.vaddr for s in elf.segments if s.type == PT_LOAD)
                self._tables[path] = (elf, compile_table(elf), base)
            except (OSError, UnwindError) as e:
                self._tables[path] = f"no table: {e}"
        return self._tables[path]


def _maps(pid: int) -> list[tuple[int, int, str, int, str]]:
    found = []
    with open(f"/proc/{pid}/maps") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(None, 5)
            low, high = (int(x, 16) for x in fields[0].split("-"))
            found.append((low, high, fields[1], int(fields[2], 16), fields[5] if len(fields) == 6 else ""))
    return found
