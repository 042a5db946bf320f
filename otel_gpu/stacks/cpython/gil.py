"""Which thread holds the GIL of this process? Read from the interpreter, which notes who took it last and whether it is taken.

Up to 3.11 a process has one GIL, within `_PyRuntime`; from 3.12 on each interpreter points to its own or to the main one's.
Offsets: `Include/internal/pycore_{gil,ceval,runtime,interp}.h`, and from 3.13 on `_Py_DebugOffsets`. A free-threaded build has
none, and is refused with its layout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...bpf.abi.unwinding import PY_ABSENT
from ...errors import OtelGpuError
from ...sandbox.confinement import Limits
from ...sandbox.memory import Memory, MemoryFault, ProcessMemory
from ...sandbox.work import OpenFile, service
from ...signals.structs import Frozen
from .layout import PythonLayout
from .process import PythonProcess

if TYPE_CHECKING:
    from collections.abc import Collection

_LAST_HOLDER = struct.Struct("<Qi4x")
"""`_gil_runtime_state.last_holder` and `.locked`, one behind the other in every version."""
_MAX_INTERPRETERS = 256
_TCB = struct.Struct("<Q8xQ")
_TCB_TID = 0x2D0
"""glibc, x86-64: struct pthread begins with its own address, twice (tcbhead_t), and has the TID here (nptl/descr.h)."""

GIL = Limits(answer_s=1.0, cpu_s=60, memory_bytes=128 << 20, answer_bytes=64 << 10)
"""Of a child that reads who holds the GIL of one process."""


class Asked(msgspec.Struct, frozen=True):
    """The question who holds the GIL now."""


class _Gil(Frozen):
    """A GIL as it was read."""

    address: int
    holder: int
    locked: int


def holders(memory: Memory, python: PythonProcess) -> list[int]:
    """Return the TIDs of threads that hold a GIL: one for each GIL that is taken, none where that is not certain."""
    found = []
    interpreters = list(_interpreters(memory, python))
    for address in _gils(memory, python, interpreters):
        before = _read(memory, address)
        # 1: taken. Between that and the note of who has taken it there is a moment, which a second look tells.
        if before.locked != 1 or not before.holder:
            continue
        tid = _tid(memory, python.layout, before.holder, interpreters)
        if tid is not None and _read(memory, address) == before:
            found.append(tid)
    return found


def _interpreters(memory: Memory, python: PythonProcess) -> Iterator[int]:
    address = _u64(memory, python.interpreters)
    for _ in range(_MAX_INTERPRETERS):
        if not address:
            return
        yield address
        address = _u64(memory, address + python.layout.interp_next)


def _gils(memory: Memory, python: PythonProcess, interpreters: Sequence[int]) -> Iterator[int]:
    place = python.gil
    if place is None:
        return
    if place.in_runtime:
        yield python.interpreters - python.layout.runtime_interpreters + place.in_runtime + place.last_holder
        return
    for pointer in sorted({_u64(memory, interpreter + place.pointer) for interpreter in interpreters} - {0}):
        yield pointer + place.last_holder


def _read(memory: Memory, address: int) -> _Gil:
    return _Gil(address, *_LAST_HOLDER.unpack(memory.read(address, _LAST_HOLDER.size)))


def _tid(memory: Memory, layout: PythonLayout, state: int, interpreters: Collection[int]) -> int | None:
    """Return the TID of a thread state; None for what is no thread state of these interpreters."""
    if _u64(memory, state + layout.tstate_interp) not in interpreters:
        return None
    # The C library's own note is right after a fork, too, and is there before 3.11.
    pthread = _u64(memory, state + layout.tstate_thread_id)
    try:
        if _TCB.unpack(memory.read(pthread, _TCB.size)) == (pthread, pthread):
            return int.from_bytes(memory.read(pthread + _TCB_TID, 4), "little")
    except MemoryFault:
        pass
    return None if layout.tstate_native_id == PY_ABSENT else _u64(memory, state + layout.tstate_native_id) & 0xFFFFFFFF


def _u64(memory: Memory, address: int) -> int:
    return int.from_bytes(memory.read(address, 8), "little")


@service(PythonProcess, Asked, list[int])
def gil_holders(files: Sequence[OpenFile], python: PythonProcess) -> Callable[[Asked], list[int]]:
    """Return what says who holds the GIL of a process, whose memory the file is."""
    memory = ProcessMemory(files[0].descriptor)

    def answer(_question: Asked) -> list[int]:
        try:
            return holders(memory, python)
        except OtelGpuError:
            return []

    return answer
