"""Where are the functions of a provider that libibverbs calls by pointer? In the table it hands to `verbs_set_ops`.

Providers' own functions have no symbol. But each calls `verbs_set_ops(context, &table)`, and its table lies in the file,
an entry for each operation, in an order that rdma-core changes now and then. x86-64 only: elsewhere, and where a table is
handed over in another way, it is learnt when a process opens a device.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...errors import ElfError
from ...sandbox.elf import EM_X86_64, PF_X, PT_LOAD, ElfFile
from ...signals.structs import Frozen

SET_OPS = "verbs_set_ops"
ENTRIES = 96
MOST_ADDRESS = 1 << 57
"""Of what a process can have: what a file says beyond it is forged."""
_INDEX = (
    (24, 49),
    (28, 50),
    (31, 52),
    (35, 53),
    (59, 55),
    (62, 56),
    (64, 58),
)
"""From which version of rdma-core on poll_cq is which entry; post_recv and post_send are the next ones."""
_BY_ABI = {22: None, 25: 49, 33: 52, 34: 53, 57: 53, 59: None, 64: 58}
"""The same by the private ABI in a provider's name, where that says it."""
_VERSION = re.compile(rb"\.so\.\d+\.\d+\.(\d{2,3})\.\d+$")
_ABI = re.compile(rb"-rdmav(\d+)\.so")
_RELATIVE, _ABSOLUTE = 8, 1
_LOOK_BACK = 96
_MOST_TEXT = 256 << 20
_MOST_RELOCATIONS = 1 << 20
_MOST_TABLES = 64
_RELA = np.dtype([("at", "<u8"), ("info", "<u8"), ("addend", "<i8")])
_Bytes = npt.NDArray[np.uint8]


class Operations(Frozen):
    """Link-time addresses of a table's functions; 0 for none."""

    poll_cq: int
    post_recv: int
    post_send: int


def version_of(path: bytes) -> int | None:
    """Return rdma-core's version that a library's full name ends with, as `libibverbs.so.1.14.44.0`."""
    found = _VERSION.search(path)
    return int(found[1]) if found else None


def index_of(version: int | None, path: bytes) -> int | None:
    """Return which entry of a provider's table is poll_cq; None where it is not known."""
    version = version or version_of(path)
    if version is not None:
        return max((entry for since, entry in _INDEX if since <= version), default=None)
    found = _ABI.search(path)
    return _BY_ABI.get(int(found[1])) if found else None


def operations(elf: ElfFile, index: int) -> Iterator[Operations]:
    """Yield the functions of each table that a file hands to `verbs_set_ops`; ElfError for what cannot be read."""
    if elf.machine != EM_X86_64:
        return
    relocations = _relocations(elf)
    slots = _slots(elf, relocations)
    if not slots:
        return
    pointers = {
        int(at): int(addend)
        for at, info, addend in relocations[(relocations["info"] & 0xFFFFFFFF) == _RELATIVE].tolist()
    }
    for table in sorted(_tables(elf, slots))[:_MOST_TABLES]:
        entries = [pointers.get(table + 8 * (index + n)) or _word(elf, table + 8 * (index + n)) for n in range(3)]
        if any(entries):
            yield Operations(*entries)


def _word(elf: ElfFile, vaddr: int) -> int:
    """Return a pointer as it stands in the file, where packed relocations (RELR) leave it."""
    try:
        (value,) = struct.unpack("<Q", elf.read_vaddr(vaddr, 8))
    except ElfError:
        return 0
    return int(value)


def _relocations(elf: ElfFile) -> npt.NDArray[np.void]:
    found = [np.zeros(0, _RELA)]
    for section in elf.sections:
        if section.name in (".rela.dyn", ".rela.plt"):
            size = min(section.size // _RELA.itemsize, _MOST_RELOCATIONS) * _RELA.itemsize
            found.append(np.frombuffer(elf.read(section.offset, size), _RELA))
    return np.concatenate(found)


def _slots(elf: ElfFile, relocations: npt.NDArray[np.void]) -> set[int]:
    """Return where the linker puts the address of `verbs_set_ops`."""
    dynsym = elf.section(".dynsym")
    if dynsym is None or dynsym.link >= len(elf.sections):
        return set()
    strings = elf.section_data(elf.sections[dynsym.link])
    wanted = strings.find(b"\0" + SET_OPS.encode() + b"\0") + 1
    if not wanted:
        return set()
    symbols = elf.section_data(dynsym)
    numbers = [n for n in range(len(symbols) // 24) if symbols[24 * n : 24 * n + 4] == wanted.to_bytes(4, "little")]
    mine = np.isin(relocations["info"] >> np.uint64(32), np.array(numbers, np.uint64))
    return {int(at) for at in relocations["at"][mine] if at < MOST_ADDRESS}


def _tables(elf: ElfFile, slots: set[int]) -> Iterator[int]:
    code = [
        (s.vaddr, np.frombuffer(elf.read(s.offset, s.file_size), np.uint8))
        for s in elf.segments
        if s.type == PT_LOAD and s.flags & PF_X and 8 < s.file_size < _MOST_TEXT and s.vaddr < MOST_ADDRESS
    ]
    stubs = set[int]()
    calls: list[tuple[int, _Bytes, int]] = []
    for vaddr, text in code:
        for at in _references(text, vaddr, b"\xff\x25", slots):
            # An endbr64, a bnd prefix, or both may stand before it.
            stubs |= {vaddr + at - before for before in (0, 1, 4, 5)}
        calls += [(vaddr, text, at) for at in _references(text, vaddr, b"\xff\x15", slots)]
    for vaddr, text in code:
        for opcode in (b"\xe8", b"\xe9"):
            calls += [(vaddr, text, at) for at in _references(text, vaddr, opcode, stubs)]
    for vaddr, text, at in calls:
        first = max(at - _LOOK_BACK, 0)
        loads = text[first:at].tobytes()
        # lea rsi, [rip + ...]
        if (last := loads.rfind(b"\x48\x8d\x35")) >= 0 and last + 7 <= len(loads):
            yield vaddr + first + last + 7 + int.from_bytes(loads[last + 3 : last + 7], "little", signed=True)


def _references(text: _Bytes, vaddr: int, opcode: bytes, targets: set[int]) -> list[int]:
    """Return where an instruction with a 32-bit relative operand leads to one of some addresses."""
    size = len(opcode) + 4
    if not targets or text.size < size:
        return []
    is_opcode = text[: text.size - size + 1] == opcode[0]
    if len(opcode) > 1:
        is_opcode = is_opcode & (text[1 : text.size - size + 2] == opcode[1])
    at = np.flatnonzero(is_opcode)
    operand = np.zeros(at.size, np.int64)
    for n in range(4):
        operand |= text[at + len(opcode) + n].astype(np.int64) << 8 * n
    operand = operand.astype(np.uint32).view(np.int32).astype(np.int64)
    leads = at + vaddr + size + operand
    return [int(a) for a in at[np.isin(leads, np.array(sorted(targets), np.int64))]]
