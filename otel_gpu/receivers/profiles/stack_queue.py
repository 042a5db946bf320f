"""When is a stack added up? Once its functions have names: in order for each program, and no program waits for another's."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from ...discovery.program_id import ProgramId
from ...runtime.fair_pool import FairPool
from ...runtime.supervision import Health
from ...sandbox.parsers import Parsers
from ...signals.profiles import Stack, truncation
from ...signals.structs import Frozen, Record
from ...stacks.cpython.names import PythonNames
from ...stacks.cpython.process import PythonProcess
from ...stacks.symbols.file_names import FileNames
from ...stacks.symbols.made_names import MadeNames
from ...stacks.symbols.stacks import STOPS, RawStack, StackNamer
from ...stacks.unwind.loader import UnwindLoader, WalkedProcess
from .sums import StackSample

_NAMES_FOR_S = 1.0
"""How long a code object is taken for the same when its address comes again."""
_MAX_WAITING = 8_192
"""Stacks of one program; those beyond do not wait for names."""


class _Raw(Frozen, eq=False):
    """A sample as the kernel has it."""

    sample: StackSample
    frames: bytes | None
    """None: it comes without a stack."""


class _Line(Record, eq=False):
    """The stacks of one program."""

    program: ProgramId
    raw: deque[_Raw] = msgspec.field(default_factory=deque)
    read: deque[tuple[StackSample, RawStack]] = msgspec.field(default_factory=deque)
    walked: WalkedProcess | None = None
    namer: StackNamer | None = None
    believed_since: float = 0.0
    waits_no_more: bool = False
    """Whether names that are not known by now are not waited for."""
    is_handing_on: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether something is yet to be handed on."""
        return bool(self.raw or self.read or self.is_handing_on)


class StackQueue:
    """Has stacks named and hands them on. Safe to use from several threads."""

    def __init__(
        self,
        parsers: Parsers,
        loader: UnwindLoader,
        on_stack: Callable[[ProgramId, StackSample, Stack], None],
        on_lost: Callable[[StackSample], None],
    ) -> None:
        """`on_stack` is told of stacks with their names, by threads of its own; `on_lost` of samples that got lost."""
        self._parsers = parsers
        self._loader = loader
        self._on_stack = on_stack
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._lines: dict[ProgramId, _Line] = {}
        self._python: dict[int, PythonNames] = {}
        self._made: dict[int, MadeNames] = {}
        """By process."""
        self._pool = FairPool("stack names", at_once=4)
        self._files = FileNames(parsers, self._go_on)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop; what waits is dropped."""
        self._pool.close(timeout_s)
        self._files.close(timeout_s)
        for names in self._names():
            names.close()

    def health(self) -> list[Health]:
        """Say how the threads are that look names up."""
        return [worker.health() for worker in (*self._pool.workers, *self._files.workers)]

    def put(self, program: ProgramId, sample: StackSample, frames: bytes | None) -> None:
        """Add a sample with the kernel's frames, or one that comes without any; `run` has them named."""
        with self._changed:
            line = self._lines.get(program)
            if line is None:
                line = self._lines[program] = _Line(program)
            line.raw.append(_Raw(sample, frames))

    def run(self) -> None:
        """Begin to name what was put in."""
        self._submit(line for line in list(self._lines.values()) if line.raw)

    def rest(self) -> None:
        """End the children that read programs' memory and were not asked lately."""
        for names in self._names():
            names.close_idle()

    def expect(self, pid: int, python: PythonProcess) -> None:
        """Be ready for the stacks of a process whose Python can be followed."""
        self._python_of(pid).expect(python)

    def clear(self, timeout_s: float = 1.0) -> None:
        """Drop what waits."""
        with self._changed:
            for line in self._lines.values():
                line.raw.clear()
                line.read.clear()
            self._changed.wait_for(lambda: not any(line.is_handing_on for line in self._lines.values()), timeout_s)

    def settle(self, timeout_s: float, programs: Collection[ProgramId] | None = None) -> None:
        """Hand on everything of programs, or of all, with the names that become known in time."""
        lines = [line for line in list(self._lines.values()) if programs is None or line.program in programs]
        self._submit(lines)
        if self._wait(lines, timeout_s):
            return
        for line in lines:
            line.waits_no_more = True
        self._submit(lines)
        self._wait(lines, timeout_s)
        for line in lines:
            line.waits_no_more = False
            self._lose(line)

    def forget(self, program: ProgramId) -> None:
        """Drop a program that has ended."""
        with self._changed:
            line = self._lines.pop(program, None)
        if line is None:
            return
        self._pool.forget(program)
        self._lose(line)
        self.release(program.pid)

    def release(self, pid: int) -> None:
        """Drop what was kept for a process, if no program of which stacks are known runs in it."""
        with self._changed:
            if any(program.pid == pid for program in self._lines):
                return
            python, made = self._python.pop(pid, None), self._made.pop(pid, None)
        if python is not None:
            python.close()
        if made is not None:
            made.close()
        self._files.release(pid)

    def _python_of(self, pid: int) -> PythonNames:
        with self._changed:
            if pid not in self._python:
                self._python[pid] = PythonNames(self._parsers, pid)
            return self._python[pid]

    def _names(self) -> list[PythonNames | MadeNames]:
        with self._changed:
            return [*self._python.values(), *self._made.values()]

    def _made_of(self, pid: int) -> MadeNames:
        with self._changed:
            if pid not in self._made:
                self._made[pid] = MadeNames(self._parsers, pid)
            return self._made[pid]

    def _submit(self, lines: Iterable[_Line]) -> None:
        for line in lines:
            self._pool.submit(line.program, partial(self._name, line))

    def _go_on(self) -> None:
        """Hand on what names have become known of."""
        self._submit(line for line in list(self._lines.values()) if line.read)

    def _wait(self, lines: Collection[_Line], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not any(line.is_busy for line in lines), timeout_s)

    def _lose(self, line: _Line) -> None:
        with self._changed:
            left = [*(raw.sample for raw in line.raw), *(sample for sample, _ in line.read)]
            line.raw.clear()
            line.read.clear()
        for sample in left:
            self._on_lost(sample)

    def _name(self, line: _Line) -> None:
        try:
            self._read(line)
        finally:
            while self._hand_on(line):
                pass

    def _read(self, line: _Line) -> None:
        """Read what is new: code objects may be freed any moment."""
        with self._changed:
            new = list(line.raw)
        try:
            stacks = self._stacks(line, new)
        except Exception:
            with self._changed:
                lost = [line.raw.popleft().sample for raw in new if line.raw and line.raw[0] is raw]
            for sample in lost:
                self._on_lost(sample)
            raise
        with self._changed:
            for raw, stack in zip(new, stacks, strict=True):
                # Unless it was dropped meanwhile.
                if line.raw and line.raw[0] is raw:
                    line.raw.popleft()
                    line.read.append((raw.sample, stack))

    def _stacks(self, line: _Line, new: Sequence[_Raw]) -> list[RawStack]:
        walked = self._loader.process(line.program.pid)
        if walked is not None and walked is not line.walked:
            line.walked = walked
            line.namer = StackNamer(walked, self._files, self._python_of(walked.pid), self._made_of(walked.pid))
        if line.namer is None:
            return [_without_frames(raw) for raw in new]
        now = time.monotonic()
        if now - line.believed_since > _NAMES_FOR_S:
            line.believed_since = now
            line.namer.forget_changing()
        named = iter(line.namer.read([(raw.frames, raw.sample.stop) for raw in new if raw.frames is not None]))
        return [_without_frames(raw) if raw.frames is None else next(named) for raw in new]

    def _hand_on(self, line: _Line) -> bool:
        """Hand the first stack on; False where there is none, or its names are not known yet."""
        with self._changed:
            if not line.read or line.is_handing_on:
                return False
            sample, stack = line.read[0]
            named: Stack | Exception | None
            try:
                at_once = line.waits_no_more or len(line.read) > _MAX_WAITING
                named = stack.named if line.namer is None else line.namer.name(stack, at_once=at_once)
            except Exception as e:  # noqa: BLE001 - it would fail again, and hold up all behind it
                named = e
            if named is None:
                return False
            line.read.popleft()
            line.is_handing_on = True
        try:
            if isinstance(named, Exception):
                raise named
            self._on_stack(line.program, sample, named)
        except Exception:
            self._on_lost(sample)
            raise
        finally:
            with self._changed:
                line.is_handing_on = False
                self._changed.notify_all()
        return True


def _without_frames(raw: _Raw) -> RawStack:
    """Return what stands for a sample without a stack, or for the stack of a process that cannot be walked yet."""
    stop = raw.sample.stop
    return RawStack((), stop, () if raw.frames is None else (truncation(STOPS.get(stop, STOPS[0])),))
