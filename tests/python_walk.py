"""Which Python frames does each thread of this process have? A walk from user space, thread by thread.

The kernel walks frames itself, at the moment a probe fires; this is what its walk is compared with. It follows the
interpreter's own lists through /proc/PID/mem while the process runs. A running thread changes its chain while it is read, so a
stack is a claim unless the thread rests.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from otel_gpu.bpf.abi.unwinding import PY_ABSENT, EntryRule
from otel_gpu.sandbox.memory import Memory
from otel_gpu.stacks.cpython.layout import PythonLayout

_MAX_INTERPRETERS = 1_024
_MAX_THREADS = 65_536
_MAX_FRAMES = 4_096
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class PythonThread:
    """One thread state; `native_id` is the TID, 0 before 3.11."""

    address: int
    ident: int
    native_id: int


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """One frame as it stands in memory, innermost first; what `CodeObjects.resolve` takes."""

    code: int
    instr: int
    owner: int | None
    is_entry: bool
    """The outermost frame of its native eval activation."""


class PythonThreads:
    """The thread states of one process, found from `_PyRuntime`."""

    def __init__(self, memory: Memory, layout: PythonLayout, runtime: int) -> None:
        """`runtime` is the address of `_PyRuntime` in the process."""
        self._memory = memory
        self._layout = layout
        self._runtime = runtime

    def __iter__(self) -> Iterator[PythonThread]:
        """Yield every thread state of every interpreter; raises MemoryFault where a list leads nowhere."""
        layout = self._layout
        budget = _MAX_THREADS
        interp = self._u64(self._runtime + layout.runtime_interpreters)
        for _ in range(_MAX_INTERPRETERS):
            if not interp:
                return
            state = self._u64(interp + layout.interp_threads)
            while state and budget:
                budget -= 1
                native_id = 0 if layout.tstate_native_id == PY_ABSENT else self._u64(state + layout.tstate_native_id)
                yield PythonThread(state, self._u64(state + layout.tstate_thread_id), native_id)
                state = self._u64(state + layout.tstate_next)
            interp = self._u64(interp + layout.interp_next)

    def frames(self, thread: PythonThread) -> list[FrameRecord]:
        """Return the thread's Python frames without shims, at most 4,096; raises MemoryFault on a torn chain."""
        layout = self._layout
        if layout.tstate_frame != PY_ABSENT:
            address = self._u64(thread.address + layout.tstate_frame)
        else:
            address = self._u64(self._u64(thread.address + layout.tstate_cframe) + layout.cframe_frame)
        found: list[FrameRecord] = []
        for _ in range(_MAX_FRAMES):
            if not address:
                break
            self._append(found, address)
            address = self._u64(address + layout.frame_previous)
        return found

    def _append(self, found: list[FrameRecord], address: int) -> None:
        layout = self._layout
        owner = None if layout.frame_owner == PY_ABSENT else self._memory.read(address + layout.frame_owner, 1)[0]
        if owner is not None and layout.shim_owners >> owner & 1:
            # A shim ends the activation whose outermost Python frame is the last one found.
            if found:
                last = found[-1]
                found[-1] = FrameRecord(last.code, last.instr, last.owner, is_entry=True)
            return
        is_entry = layout.entry_rule is EntryRule.EACH
        if layout.frame_is_entry != PY_ABSENT:
            is_entry = self._memory.read(address + layout.frame_is_entry, 1) != b"\0"
        instr = int.from_bytes(self._memory.read(address + layout.frame_instr, layout.frame_instr_size), "little")
        code = self._u64(address + layout.frame_code) & ~layout.tag_mask
        found.append(FrameRecord(code, instr, owner, is_entry))

    def _u64(self, address: int) -> int:
        value: int = _U64.unpack(self._memory.read(address, 8))[0]
        return value
