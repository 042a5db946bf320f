"""What does each thread of a process do now? Its stack, with Python's functions in their place, and the call that it is in.

A thread that waits, or gets no CPU, is walked where it stands. One that runs is seen by the timer of its CPU a moment later. No thread is
stopped for it.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterable
from pathlib import PurePosixPath

from ..bpf.abi.samples import SampleType, ThreadActivity
from ..discovery import procfs
from ..errors import ProcessGoneError
from ..receivers.profiles.sums import StackSample
from ..signals.frame_names import clean
from ..signals.profiles import CPU, Frame, FrameKind, Stack, is_truncated
from ..signals.structs import Frozen
from .recording import Recording

_CPU_HZ = 499
_LOOK_S = 0.05
"""Between two looks at threads whose stacks are not whole."""
_LOOKS = 8
_MAX_THREADS = 65_536
_DRIVERS = ("libcuda.so", "libamdhip64.so")
_CALL = re.compile(r"(?:cu|hip)[A-Z][A-Za-z0-9_]{1,100}$")
_TAKES_GIL = frozenset({"take_gil", "PyEval_AcquireThread", "PyEval_RestoreThread", "PyEval_AcquireLock"})
_STATES = {
    "R": "running",
    "S": "blocked",
    "D": "blocked without interruption",
    "I": "blocked without interruption",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended",
    "X": "ended",
}


_FOUND: dict[int, str] = {ThreadActivity.RUNNING: _STATES["R"], ThreadActivity.READY: "ready to run"}


class ThreadSnapshot(Frozen):
    """What one thread did."""

    tid: int
    name: str
    state: str
    stack: Stack
    """Leaf first; empty where it could not be had in time."""
    has_gil: bool = False
    """The interpreter says that it held the GIL when it was looked at."""

    @property
    def cuda_call(self) -> str | None:
        """The call of the driver that it is in: its name, or which library's it is; None for none."""
        calls = [f for f in self.stack if f.mapping is not None and _file(f).startswith(_DRIVERS)]
        if not calls:
            return None
        # An exported function may have gone on as another one, which is named after it.
        named = _CALL.search(calls[-1].function)
        return named[0] if named else f"a call of {_file(calls[-1])}"

    @property
    def gil(self) -> str | None:
        """`holds` where the interpreter says so, `waits` where its stack does; None where nothing is known."""
        if any(f.kind is FrameKind.CPYTHON for f in self.stack) and any(f.function in _TAKES_GIL for f in self.stack):
            return "waits"
        return "holds" if self.has_gil else None


def take_snapshot(pid: int, timeout_s: float) -> list[ThreadSnapshot]:
    """Return what the threads of a process do, the first one first; OtelGpuError where it is gone or may not be looked at.

    What is needed to walk its stacks is waited for, for so long at most; what there is then is returned.
    """
    deadline = time.monotonic() + timeout_s
    seen: dict[int, tuple[int, Stack]] = {}

    def note(sample: StackSample, stack: Stack) -> None:
        if sample.kind == SampleType.CPU:
            seen[sample.tid] = ThreadActivity.RUNNING, stack
        elif sample.value != ThreadActivity.RUNNING:
            seen[sample.tid] = int(sample.value), stack
        else:
            seen.setdefault(sample.tid, (ThreadActivity.RUNNING, ()))

    with Recording(pid, (CPU,), cpu_hz=_CPU_HZ, shows_threads=True) as recording:
        recording.prepare(timeout_s=max(deadline - time.monotonic(), 0))
        recording.start()
        for look in itertools.count(1):
            seen.clear()
            recording.ask_threads(note, max(min(deadline - time.monotonic(), 1.0), _LOOK_S))
            gil = recording.gil_holders()
            time.sleep(_LOOK_S)
            recording.ask_threads(lambda sample, stack: _add(seen, sample, stack), _LOOK_S)
            names = _threads(pid)
            is_whole = all(tid in seen and seen[tid][1] and not is_truncated(seen[tid][1]) for tid in names)
            # What is cut short for another reason than tables that are being read stays so.
            is_learnt = look >= _LOOKS and not recording.progress().files
            if is_whole or is_learnt or not names or time.monotonic() > deadline:
                break
    return [
        _snapshot(tid, name, state, *seen.get(tid, (0, ())), has_gil=tid in gil)
        for tid, (name, state) in sorted(names.items())
    ]


def _add(seen: dict[int, tuple[int, Stack]], sample: StackSample, stack: Stack) -> None:
    """Take what the timers saw of threads that ran when they were looked at, and what is new."""
    known = seen.get(sample.tid)
    if known is not None and known[1]:
        return
    if sample.kind == SampleType.CPU:
        seen[sample.tid] = ThreadActivity.RUNNING, stack
    elif stack:
        seen[sample.tid] = int(sample.value), stack


def _snapshot(tid: int, name: str, state: str, found: int, stack: Stack, *, has_gil: bool) -> ThreadSnapshot:
    # Of one that is blocked /proc says more; of one that has moved since, the kernel's word belongs to the stack.
    if found in _FOUND:
        state = _FOUND[found]
    elif found == ThreadActivity.BLOCKED and state == _STATES["R"]:
        state = _STATES["S"]
    return ThreadSnapshot(tid, name, state, stack, has_gil)


def _threads(pid: int) -> dict[int, tuple[str, str]]:
    """Return the name and the state of each thread, as far as they can be known."""
    try:
        tids = [int(entry) for entry in os.listdir(f"/proc/{pid}/task")[:_MAX_THREADS]]
    except OSError:
        return {}
    found = {}
    for tid in tids:
        try:
            stat = procfs.read(pid, f"task/{tid}/stat")
        except (OSError, ProcessGoneError):
            continue
        head, _, tail = stat.rpartition(b")")
        state = tail.split()[:1]
        name = head.partition(b"(")[2].decode("utf-8", "replace")
        found[tid] = clean(name), _STATES.get(state[0].decode() if state else "", "unknown")
    return found


def _file(frame: Frame) -> str:
    return PurePosixPath(frame.mapping.path).name if frame.mapping is not None else ""


def merged(threads: Iterable[ThreadSnapshot]) -> list[list[ThreadSnapshot]]:
    """Return threads that do the same together, in the order of the first of each."""
    groups: dict[tuple[str, bool, Stack], list[ThreadSnapshot]] = {}
    for thread in threads:
        groups.setdefault((thread.state, thread.has_gil, thread.stack), []).append(thread)
    return list(groups.values())
