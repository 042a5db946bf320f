"""How does this process's CPython keep its frames? Layout, eval loop and thread state, as addresses of the process."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator

from ...bpf.abi.unwinding import ThreadStatePlace
from ...errors import OtelGpuError
from ...sandbox.memory import Memory
from ...signals.structs import Frozen
from .gil_place import GilPlace, gil_place
from .layout import PythonLayout, TssKind, UnsupportedPythonError
from .text import PythonBinary

# glibc, x86-64: struct pthread.specific_1stblock, 32 entries of {seq, data} (nptl/descr.h); 2.36 and 2.43 agree.
_FIRST_BLOCK, _ENTRY, _DATA, _KEYS = 0x310, 16, 8, 32
_NO_MODULE = 1 << 20
_MAX_TLS = 64 << 10
_MOST_STATES = 512


class PythonProcess(Frozen):
    """What the kernel needs to know of a process's Python, and the code-object reader too."""

    layout: PythonLayout
    eval_ranges: tuple[tuple[int, int], ...]
    """Addresses in the process."""
    thread_state: int
    """A `ThreadStatePlace`."""
    thread_offset: int
    thread_module: int
    interpreters: int
    """Where the pointers to the newest and, behind it, to the main interpreter are."""
    code_type: int
    """Address of PyCode_Type, 0 where unknown."""
    gil: GilPlace | None = None


class NotStartedError(OtelGpuError):
    """The interpreter has not made its thread key yet: look again later."""


def locate(binary: PythonBinary, bias: int, memory: Memory) -> PythonProcess:
    """Return where a process keeps its Python frames; UnsupportedPythonError, NotStartedError where it cannot be told.

    `bias` is the difference between addresses in the process and in the file.
    """
    layout = binary.layout()
    ranges = tuple((start + bias, end + bias) for start, end in binary.eval_ranges)
    if binary.is_stripped:
        state, module = int(ThreadStatePlace.SLOT), 0
        offset = observed_slot(layout, binary.runtime + bias, memory, binary.tls_bytes)
    else:
        state, offset, module = thread_state_place(layout, binary.runtime + bias, bias, memory)
    interpreters = binary.runtime + bias + layout.runtime_interpreters
    gil = gil_place(layout.minor, binary.debug_offsets)
    code_type = binary.code_type + bias if binary.code_type else 0
    return PythonProcess(layout, ranges, state, offset, module, interpreters, code_type, gil)


def thread_state_place(layout: PythonLayout, runtime: int, bias: int, memory: Memory) -> tuple[int, int, int]:
    """Return where a thread has the pointer to its state, the offset, and the number of the module."""
    if layout.tss_kind is TssKind.SLOT:
        return ThreadStatePlace.SLOT, layout.tss_offset, 0
    if layout.tss_kind is TssKind.KEY:
        # Py_tss_t: {int is_initialized; pthread_key_t key}.
        ready, key = struct.unpack("<iI", memory.read(runtime + layout.tss_offset - 4, 8))
        if not ready:
            raise NotStartedError("the interpreter has not started")
        if key < _KEYS:
            return ThreadStatePlace.SLOT, _FIRST_BLOCK + _ENTRY * key + _DATA, 0
        raise UnsupportedPythonError(
            f"CPython 3.{layout.minor}: its thread key is {key}, and only the first {_KEYS} are followed; the process gets "
            "native stacks only"
        )
    if layout.tss_kind is TssKind.DTV:
        module, offset = struct.unpack("<QQ", memory.read(layout.tss_offset + bias, 16))
        if not 0 < module < _NO_MODULE:
            raise NotStartedError("the interpreter's thread-local block is not set up")
        return ThreadStatePlace.DTV, offset + layout.tss_block, module
    raise UnsupportedPythonError(
        f"CPython 3.{layout.minor}: it is not known where this build keeps its thread states; its processes get native "
        "stacks only"
    )


def observed_slot(layout: PythonLayout, runtime: int, memory: Memory, tls_bytes: int) -> int:
    """Return how far from its base a thread has the pointer to its state, as the process's threads have it now.

    A state notes its thread's base. What points to the state there is the value of a thread key, or from 3.15 on one of
    the program's own thread-local variables, which take `tls_bytes` below the base.
    """
    if layout.tss_kind is TssKind.KEY:
        begin, size, step = _FIRST_BLOCK + _DATA, _ENTRY * _KEYS, _ENTRY
    else:
        size = min(tls_bytes, _MAX_TLS)
        begin, step = -size, 8
    if not size:
        raise UnsupportedPythonError(
            f"CPython 3.{layout.minor}: it is not known where a library that was stripped keeps its thread states; its "
            "processes get native stacks only"
        )
    states: defaultdict[int, set[bytes]] = defaultdict(set)
    for state, base in _thread_states(layout, runtime, memory):
        states[base].add(struct.pack("<Q", state))
    found: set[int] | None = None
    for base, wanted in states.items():
        words = memory.read(base + begin, size)
        here = {begin + at for at in range(0, size, step) if words[at : at + 8] in wanted}
        found = here if found is None else found & here
    if not found:
        raise NotStartedError("no thread has its state yet")
    if len(found) > 1 and layout.tss_kind is not TssKind.KEY:
        # Of the thread that holds the GIL two variables have the state, and only one of those that do not.
        raise NotStartedError("it cannot be told yet which variable has a thread's state")
    # Other libraries may keep the same pointer under a key of their own, which they make later.
    return min(found)


def _thread_states(layout: PythonLayout, runtime: int, memory: Memory) -> Iterator[tuple[int, int]]:
    """Yield the thread states of a process, each with its thread's base."""
    interpreter = _word(memory, runtime + layout.runtime_interpreters)
    left = _MOST_STATES
    while interpreter and left:
        state = _word(memory, interpreter + layout.interp_threads)
        while state and left:
            left -= 1
            base = _word(memory, state + layout.tstate_thread_id)
            if base:
                yield state, base
            state = _word(memory, state + layout.tstate_next)
        left = max(left - 1, 0)
        interpreter = _word(memory, interpreter + layout.interp_next)


def _word(memory: Memory, address: int) -> int:
    value: int = struct.unpack("<Q", memory.read(address, 8))[0]
    return value
