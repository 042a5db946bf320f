"""How does this process's CPython keep its frames? Layout, eval loop and thread state, as addresses of the process."""

from __future__ import annotations

import struct

from ..errors import OtelGpuError
from ..process.memory import Memory
from ..signals.structs import Frozen
from .gil_place import GilPlace, gil_place
from .layout import PythonLayout, TssKind, UnsupportedPythonError
from .text import PythonBinary

# glibc, x86-64: struct pthread.specific_1stblock, 32 entries of {seq, data} (nptl/descr.h); 2.36 and 2.43 agree.
_FIRST_BLOCK, _ENTRY, _DATA, _KEYS = 0x310, 16, 8, 32
_NO_MODULE = 1 << 20

SLOT, DTV = 1, 2


class PythonProcess(Frozen):
    """What the kernel needs to know of a process's Python, and the code-object reader too."""

    layout: PythonLayout
    eval_ranges: tuple[tuple[int, int], ...]
    """Addresses in the process."""
    thread_state: int
    """SLOT or DTV."""
    thread_offset: int
    thread_module: int
    interpreters: int
    """Where the pointers to the newest and, behind it, to the main interpreter are."""
    code_type: int
    """Address of PyCode_Type, 0 where unknown."""
    gil: GilPlace | None = None


class NotStartedError(OtelGpuError):
    """The interpreter has not made its thread key yet: look again later."""


def locate(binary: PythonBinary, bias: int, memory: Memory, code_type: int = 0) -> PythonProcess:
    """Return where a process keeps its Python frames; UnsupportedPythonError, NotStartedError where it cannot be told.

    `bias` is the difference between addresses in the process and in the file.
    """
    layout = binary.layout()
    ranges = tuple((start + bias, end + bias) for start, end in binary.eval_ranges)
    state, offset, module = thread_state_place(layout, binary.runtime + bias, bias, memory)
    interpreters = binary.runtime + bias + layout.runtime_interpreters
    gil = gil_place(layout.minor, binary.debug_offsets)
    code_type = code_type + bias if code_type else 0
    return PythonProcess(layout, ranges, state, offset, module, interpreters, code_type, gil)


def thread_state_place(layout: PythonLayout, runtime: int, bias: int, memory: Memory) -> tuple[int, int, int]:
    """Return where a thread has the pointer to its state: SLOT or DTV, the offset, and the number of the module."""
    if layout.tss_kind is TssKind.SLOT:
        return SLOT, layout.tss_offset, 0
    if layout.tss_kind is TssKind.KEY:
        # Py_tss_t: {int is_initialized; pthread_key_t key}.
        ready, key = struct.unpack("<iI", memory.read(runtime + layout.tss_offset - 4, 8))
        if not ready:
            raise NotStartedError("the interpreter has not started")
        if key < _KEYS:
            return SLOT, _FIRST_BLOCK + _ENTRY * key + _DATA, 0
        raise UnsupportedPythonError(
            f"CPython 3.{layout.minor}: its thread key is {key}, and only the first {_KEYS} are followed; the process gets "
            "native stacks only"
        )
    if layout.tss_kind is TssKind.DTV:
        module, offset = struct.unpack("<QQ", memory.read(layout.tss_offset + bias, 16))
        if not 0 < module < _NO_MODULE:
            raise NotStartedError("the interpreter's thread-local block is not set up")
        return DTV, offset + layout.tss_block, module
    raise UnsupportedPythonError(
        f"CPython 3.{layout.minor}: it is not known where this build keeps its thread states; its processes get native "
        "stacks only"
    )
