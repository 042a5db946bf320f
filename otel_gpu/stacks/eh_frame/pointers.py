"""Does this file's code keep frame pointers? Asked of files whose unwinding tables leave most of it out.

Walking by frame pointers through code that keeps none would leave callers out, unnoticed. So the functions that the code
itself calls are looked at: where most of them begin by making a frame, all are taken to.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ...bpf.abi.unwinding import RowKind
from ...sandbox.elf import EM_X86_64, PF_X, PT_LOAD, ElfFile
from .rows import UnwindTable

MAX_CODE = 4 << 20
"""Bytes looked at: enough to tell."""
_MIN_FUNCTIONS = 2
_ALIGNED = 16
_CALL, _CALL_SIZE = 0xE8, 5
_FRAME = re.compile(rb"\x55.{0,24}\x48(\x89\xe5|\x8b\xec)", re.DOTALL)
"""push %rbp … mov %rsp,%rbp; compilers put other instructions between them."""
_STUBS = tuple(bytes.fromhex(code) for code in ("ff25", "f2ff25", "f30f1efaff25", "f30f1efaf2ff25"))
_HEAD = 32
"""Bytes of a function within which its frame is made: after a landing pad, Go's check of the stack, an early test."""
_MOST_ROWS = 1 << 17
"""A file with so many rows has tables."""


def describes_most(table: UnwindTable, elf: ElfFile) -> bool:
    """Tell whether a table holds rules for half of a file's code, or more."""
    rows = table.rows
    if rows.size > _MOST_ROWS:
        return True
    code = sum(s.mem_size for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X)
    reach = np.diff(rows["pc"].astype(np.int64), append=table.end_pc)
    return int(reach[rows["kind"] != RowKind.END].sum()) * 2 >= code


def keeps_frame_pointers(elf: ElfFile) -> bool:
    """Tell whether most functions that are called directly begin by making a frame."""
    if elf.machine != EM_X86_64:
        return False
    framed = called = 0
    for segment in elf.segments:
        if segment.type != PT_LOAD or not segment.flags & PF_X:
            continue
        size = min(segment.file_size, elf.size - segment.offset, MAX_CODE)
        code = np.frombuffer(elf.read(segment.offset, max(size, 0)), np.uint8)
        for head in _heads(code, segment.vaddr):
            called += not head.startswith(_STUBS)
            framed += _FRAME.search(head) is not None
    return called >= _MIN_FUNCTIONS and 2 * framed > called


def _heads(code: npt.NDArray[np.uint8], vaddr: int) -> list[bytes]:
    """Return the first bytes of everything that the code calls by a distance, each once."""
    if code.size <= _CALL_SIZE + _HEAD:
        return []
    at = np.flatnonzero(code[: -_CALL_SIZE + 1] == _CALL).astype(np.int64)
    distance = np.zeros(at.size, np.uint32)
    for i in range(4):
        distance |= code[at + 1 + i].astype(np.uint32) << np.uint32(8 * i)
    target = at + _CALL_SIZE + distance.view(np.int32)
    # Compilers align functions; what only looks like a call mostly leads elsewhere.
    target = np.unique(
        target[(target >= 0) & (target < code.size - _HEAD) & ((target + vaddr % _ALIGNED) % _ALIGNED == 0)]
    )
    return [code[t : t + _HEAD].tobytes() for t in target.tolist()]
