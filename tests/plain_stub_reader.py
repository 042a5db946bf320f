"""What does an x86-64 file register, read the plain way: every instruction decoded, one after the other, as text?

The agent knows blocks again and reads many calls at a time; this does neither, and is what it is compared with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import capstone
import numpy as np

from otel_gpu.errors import ElfError
from otel_gpu.receivers.cuda.kernel_names.functions import FunctionTable, code_spans, read_code
from otel_gpu.receivers.cuda.kernel_names.loaded_pointers import LoadedPointers
from otel_gpu.receivers.cuda.kernel_names.references import find_references
from otel_gpu.receivers.cuda.kernel_names.stub_map import MAX_NAME, StubMap, clean_name
from otel_gpu.sandbox.address_spans import Span
from otel_gpu.sandbox.elf import PT_LOAD, ElfFile

_CHUNK = 1 << 20
_MASK32, _MASK64 = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF
_LIMIT = re.compile(rb"\x41\xb8\xff\xff\xff\xff|\x41\x83\xc8\xff|\x49\xc7\xc0\xff\xff\xff\xff")
_TAKES_ADDRESS = re.compile(rb"(?=[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]....|[\xb8-\xbf]....)", re.DOTALL)
_NEAR, _LAST_CALL = 64, 256
_PF_W = 2

ReadPointer = Callable[[int], int | None]
Call = tuple[int, str, list[int | None]]
"""Where a call is, what it names as its target, and its first five arguments where they are known."""


@dataclass(frozen=True, slots=True)
class PlainStubs:
    """What is read: names by stub, stubs by handle variable, and the functions (start, end, stub) that mention stubs."""

    names: dict[int, str]
    handles: dict[int, int]
    users: set[tuple[int, int, int]]


def handles(stubs: StubMap) -> dict[int, str | None]:
    """Return the kernels whose handles a map's variables hold."""
    return {variable: stubs.handle_name(at) for at, variable in enumerate(stubs.handle_variables)}


def read_plainly(elf: ElfFile) -> PlainStubs:
    """Read what a file registers."""
    functions, pointers = FunctionTable(elf), LoadedPointers(elf)
    constructors: dict[int, tuple[Span, int]] = {}
    for vaddr, code in read_code(elf, _CHUNK, 8):
        for match in _LIMIT.finditer(code):
            if match.start() < _CHUNK and (span := _function(functions, vaddr + match.start())) is not None:
                constructors[span.start] = (span, vaddr + match.start())
    names: dict[int, str] = {}
    registering = set()
    spans = code_spans(elf)
    for span, last in constructors.values():
        for _, _, (_, stub, name, same, limit) in _calls(elf, span.start, min(span.end, last + _LAST_CALL), pointers):
            if limit is None or limit & _MASK32 != _MASK32 or not name or name != same or stub is None:
                continue
            if any(stub in code_span for code_span in spans) and (text := _string(elf, name)):
                names[stub] = text
                registering.add(span.start)
    users, mentions = set(), []
    for site, stub in _mentions(elf, sorted(names), pointers):
        span = _function(functions, site)
        if span is not None and span.start not in registering:
            users.add((span.start, span.end, stub))
            mentions.append((span, site))
    return PlainStubs(names, _handles(elf, mentions, names, pointers), users)


def _function(functions: FunctionTable, address: int) -> Span | None:
    found = functions.containing(np.array([address]))
    return Span(int(found.starts[0]), int(found.ends[0])) if found.held[0] else None


def _string(elf: ElfFile, vaddr: int) -> str | None:
    try:
        start = elf.to_offset(vaddr)
    except ElfError:
        return None
    text = elf.peek(start, MAX_NAME + 1).partition(b"\0")[0]
    return clean_name(text) if text else None


def _mentions(elf: ElfFile, stubs: list[int], pointers: LoadedPointers) -> list[tuple[int, int]]:
    targets = np.array(stubs, np.int64)
    found = list(zip(*(column.tolist() for column in find_references(elf, targets)), strict=True))
    slots, held = pointers.slots_of(targets)
    by_slot = dict(zip(slots.tolist(), held.tolist(), strict=True))
    loads = zip(*(column.tolist() for column in find_references(elf, slots, loads=True)), strict=True)
    return sorted(found + [(site, by_slot[slot]) for site, slot in loads])


def _handles(
    elf: ElfFile, mentions: list[tuple[Span, int]], names: dict[int, str], pointers: LoadedPointers
) -> dict[int, int]:
    strings = elf.section(".dynstr")
    imported = elf.section_data(strings).split(b"\0") if strings is not None else []
    if b"cudaLaunchKernel" in imported and b"__cudaGetKernel" not in imported:
        return {}
    variables = [Span(s.vaddr, s.vaddr + s.mem_size) for s in elf.segments if s.type == PT_LOAD and s.flags & _PF_W]
    by_callee: dict[str, dict[int, int]] = {}
    for span, site in mentions:
        first, last = max(span.start, site - _NEAR), min(span.end, site + _NEAR)
        for start in _argument_starts(elf, first, site):
            call = next((call for call in _calls(elf, start, last, pointers) if call[0] >= site), None)
            if call is None or (variable := call[2][0]) is None or not any(variable in part for part in variables):
                continue
            if (stub := call[2][1]) in names:
                by_callee.setdefault(call[1], {})[variable] = stub
                break
    return max(by_callee.values(), key=len) if by_callee else {}


def _argument_starts(elf: ElfFile, first: int, site: int) -> Iterator[int]:
    code = elf.read_vaddr(first, site + 8 - first)
    yield from (first + match.start() for match in _TAKES_ADDRESS.finditer(code, 0, site - first))
    yield site


def _calls(elf: ElfFile, start: int, end: int, pointers: LoadedPointers) -> Iterator[Call]:
    registers: dict[str, int] = {}
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    for address, size, mnemonic, operands in decoder.disasm_lite(elf.read_vaddr(start, end - start), start):
        if mnemonic == "call":
            target = f"{address + size + _displacement(operands):#x}" if "[rip" in operands else operands
            yield address, target, [registers.get(name) for name in _ARGUMENTS]
            registers = {}
        elif mnemonic[0] == "j" or mnemonic.startswith(("ret", "loop")):
            registers = {}
        elif mnemonic not in _KEEP:
            _execute(registers, mnemonic, operands, address + size, pointers.read)


_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8")
_WIDE = (
    "rax eax ax al ah|rbx ebx bx bl bh|rcx ecx cx cl ch|rdx edx dx dl dh|rsi esi si sil|rdi edi di dil|rbp ebp bp bpl|"
    "rsp esp sp spl|" + "|".join(f"r{n} r{n}d r{n}w r{n}b" for n in range(8, 16))
)
_FAMILY = {name: names.split()[0] for names in _WIDE.split("|") for name in names.split()}
_IS_32_BIT = frozenset(names.split()[1] for names in _WIDE.split("|"))
_KEEP = frozenset(("push", "cmp", "test", "nop", "endbr64", "bt", "ucomiss", "ucomisd", "comiss", "comisd"))
_WRITES_MORE = frozenset(
    ("xchg", "xadd", "cmpxchg", "cmpxchg8b", "cmpxchg16b", "mul", "mulx", "imul", "div", "idiv", "cdq", "cqo", "cwd")
).union(
    ("cpuid", "rdtsc", "rdtscp", "syscall", "enter", "lodsb", "lodsd", "lodsq", "stosb", "stosd", "stosq", "xgetbv")
)


def _execute(
    registers: dict[str, int], mnemonic: str, operands: str, following: int, read_pointer: ReadPointer
) -> None:
    target, _, source = operands.partition(", ")
    family = _FAMILY.get(target)
    moves_strings = family is None and "[" in target and "[" in source
    if mnemonic in _WRITES_MORE or mnemonic.startswith("rep") or moves_strings:
        registers.clear()
        return
    if family is None:
        return
    value = None
    if mnemonic in ("mov", "movabs"):
        value = _value(registers, source)
        if value is None and source.startswith("qword ptr [rip"):
            value = read_pointer(following + _displacement(source))
    elif mnemonic == "lea" and source.startswith("[rip"):
        value = following + _displacement(source)
    elif mnemonic == "or" and source in ("-1", "0xffffffff", "0xffffffffffffffff"):
        value = _MASK64
    elif mnemonic == "xor" and source == target:
        value = 0
    if value is None or (target != family and target not in _IS_32_BIT):
        registers.pop(family, None)
    else:
        registers[family] = value & _MASK32 if target in _IS_32_BIT else value


def _value(registers: dict[str, int], source: str) -> int | None:
    family = _FAMILY.get(source)
    if family is not None:
        return registers.get(family)
    try:
        return int(source, 0)
    except ValueError:
        return None


def _displacement(source: str) -> int:
    inside = source[source.index("[") + 4 : source.index("]")].replace(" ", "")
    return int(inside, 0) if inside else 0
