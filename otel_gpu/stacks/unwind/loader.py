"""What must the kernel know to walk a process's stacks? Its mappings, the tables of its files, its Python.

A process is walkable from the moment it is known; its stacks grow complete as the tables arrive of the files that stand on
them.
"""

from __future__ import annotations

import logging
import math
import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial

import msgspec
import numpy as np

from ...bpf.abi.unwinding import (
    EVAL_RANGES,
    MAPPING_FRAME_POINTERS,
    MAPPING_MADE,
    MAPPING_NO_TABLE,
    UNWIND_MAPPING,
    UNWIND_PROCESS,
)
from ...bpf.maps import BpfMap
from ...bpf.records import struct_of
from ...errors import OtelGpuError, ProcessGoneError
from ...runtime.fair_pool import FairPool
from ...runtime.supervision import Worker
from ...sandbox.batches import each
from ...sandbox.elf import ElfFile
from ...sandbox.files import ProcessFile
from ...sandbox.parsers import Parsers, WorkError
from ...signals.structs import Record
from ..cpython.process import PythonProcess
from .address_space import FileKey, Region, RegionIndex, load_bias, open_root, own_vdso, regions
from .cache import TableCache
from .file_tables import FileTable, FileTables
from .row_space import RowSpace
from .shape import Shape
from .table_work import PYTHON, SHAPES, Interpreter, find_python, read_frames, shape_of, shapes

_log = logging.getLogger(__name__)

_PROCESS = struct_of(UNWIND_PROCESS, as_bytes=("py",))
_MAX_REGIONS = 8192
_MAX_SAID = 100
_LOOKS = 4
"""Processes that are looked at side by side."""
_RETRY_S = 0.2
_RETRY_STUCK_S = 5.0
_RETRY_GROWTH = 1.3
_MAX_RETRY_S = 30.0
"""An interpreter may be mapped for long before it starts, and is looked at ever more seldom until then."""
_LOOK_AGAIN_S = 0.25
_EARLY = (b"libc.so", b"libc-", b"ld-", b"libpthread", b"libpython", b"python", b"libcuda", b"libamdhip", b"libffi")
"""How the names begin of files that most stacks go through, so that they are read first."""


class WalkedProcess(Record):
    """One process as the kernel knows it."""

    pid: int
    root: int | None = None
    """Its root directory, open: what its files are found by once it has ended."""
    regions: list[Region] = msgspec.field(default_factory=list)
    biases: dict[Region, int] = msgspec.field(default_factory=dict)
    python: PythonProcess | None = None
    has_no_python: bool = False
    """Its interpreters were looked at, and none can be followed."""
    is_python_sought: bool = False
    """Its interpreters were looked for, in what most stacks go through."""
    first: int = 0
    slots: int = 0
    keys: set[FileKey] = msgspec.field(default_factory=set)
    looked_at: float = 0.0
    pause_s: float = 0.0
    """How long it was left alone after its interpreter had not started."""
    index: RegionIndex = msgspec.field(default_factory=lambda: RegionIndex([]))


def most_useful(found: list[Region]) -> list[Region]:
    """Return as many regions as are kept of one process: the largest of files, in their order.

    Code that was made at run time is known as such without being listed.
    """
    kept = sorted((r for r in found if r.key is not None), key=lambda r: (r.start - r.end, r.start))
    return sorted(kept[:_MAX_REGIONS], key=lambda r: r.start)


class UnwindLoader:
    """Owns the kernel's unwinding maps."""

    def __init__(
        self,
        parsers: Parsers,
        rows: BpfMap,
        mappings: BpfMap,
        processes: BpfMap,
        cache: TableCache | None = None,
        on_python: Callable[[int, PythonProcess], None] = lambda _pid, _python: None,
    ) -> None:
        """`on_python` is told, by threads of its own, of processes whose Python can be followed."""
        self._parsers = parsers
        self._on_python = on_python
        self._mappings = RowSpace(mappings, UNWIND_MAPPING)
        self._table = processes
        self._processes: dict[int, WalkedProcess] = {}
        self._asked: dict[int, float] = {}
        """Processes that are to be looked at, and when."""
        self._looks = FairPool("unwinding looks", at_once=_LOOKS, most=2 * _LOOKS)
        self._unfinished: Counter[int] = Counter()
        """Looks at each process that have not ended."""
        self._grown: set[FileKey] = set()
        """Files of which more is known than what processes point at."""
        self._said: set[str] = set()
        self._worker = Worker("unwinding", self._step)
        self.tables = FileTables(parsers, rows, cache or TableCache(), self._on_change)
        self._lock = self.tables.lock
        self._worker.start()

    @property
    def workers(self) -> list[Worker]:
        """The threads that read files and follow processes."""
        return [self._worker, *self._looks.workers, *self.tables.workers]

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop loading; the maps go with their object."""
        deadline = time.monotonic() + timeout_s
        self._worker.stop(timeout_s)
        self._looks.close(max(deadline - time.monotonic(), 0.1))
        self.tables.close(max(deadline - time.monotonic(), 0.1))
        for process in self._processes.values():
            _close_root(process)

    def watch(self, pid: int) -> None:
        """Make a process walkable, or look at it again after it mapped more code."""
        # A program that starts maps hundreds of files: one look serves for all it has mapped by then.
        self._ask(pid, time.monotonic())

    def look_again(self, pid: int) -> None:
        """Say that a walk met code in no known mapping, as a JIT makes it; at most a few looks a second follow."""
        process = self._processes.get(pid)
        if process is not None and time.monotonic() - process.looked_at > _LOOK_AGAIN_S:
            process.looked_at = time.monotonic()
            self.watch(pid)

    def need(self, pid: int, addresses: Iterable[int]) -> bool:
        """Say that a walk ended for want of a table, at the first of addresses that stand on the stack; True: parts will come."""
        process = self._processes.get(pid)
        if process is None:
            return False
        needed: dict[FileKey, set[int]] = {}
        for address in addresses:
            region = process.index.at(address)
            if region is not None and region.key is not None and region in process.biases:
                needed.setdefault(region.key, set()).add(address - process.biases[region])
        files = [(self.tables.get(key), places) for key, places in needed.items()]
        come = [self.tables.need(file, pid, places) for file, places in files if file is not None]
        return any(come)

    def is_ready(self, pid: int) -> bool:
        """Tell whether a process can be walked through what most stacks go through."""
        with self._lock:
            process = self._processes.get(pid)
            if process is None or not self._has_early_tables(process):
                return False
            return process.is_python_sought or process.python is not None

    def python_of(self, pid: int) -> PythonProcess | None:
        """Return where a process keeps its Python frames; None as long as that is not known."""
        process = self._processes.get(pid)
        return None if process is None else process.python

    def _has_early_tables(self, process: WalkedProcess) -> bool:
        files = [self.tables.get(key) for key in process.keys]
        early = [file for file in files if file is not None and file.is_early]
        # The kernel knows of a table when those who use it were published after it was read.
        return all(self.tables.is_read(file) and file.key not in self._grown for file in early)

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything asked for so far is loaded; False when the time is up first."""
        deadline = time.monotonic() + timeout_s
        while self._is_busy():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def process(self, pid: int) -> WalkedProcess | None:
        """Return what is known of a process."""
        return self._processes.get(pid)

    def forget(self, pid: int) -> None:
        """Drop a process that has ended."""
        with self._lock:
            self._asked.pop(pid, None)
            process = self._processes.pop(pid, None)
            if process is None:
                return
            _close_root(process)
            self._table.delete(pid.to_bytes(4, "little"))
            self.tables.release(process.keys, pid)
            self._mappings.retire(process.first, process.slots)

    def known(self) -> int:
        """Return how many processes are known."""
        return len(self._processes)

    def _ask(self, pid: int, when: float) -> None:
        with self._lock:
            self._asked[pid] = min(when, self._asked.get(pid, math.inf))
        self._worker.wake()

    def _is_busy(self) -> bool:
        with self._lock:
            now = time.monotonic()
            asked = any(when <= now for when in self._asked.values())
            return bool(asked or self._unfinished or self._grown or self.tables.waiting())

    def _on_change(self, files: Collection[FileTable]) -> None:
        with self._lock:
            self._grown.update(file.key for file in files)
        self._worker.wake()

    def _step(self) -> float:
        with self._lock:
            grown, self._grown = self._grown, set()
            now = time.monotonic()
            due = [pid for pid, when in self._asked.items() if when <= now]
            for pid in due:
                del self._asked[pid]
                self._submit(pid, self._load)
            users = [process for process in self._processes.values() if not grown.isdisjoint(process.keys)]
            for process in users:
                self._publish(process)
                if process.python is None and not process.has_no_python:
                    self._submit(process.pid, self._find_python)
            left_s = max(min(self._asked.values(), default=math.inf) - time.monotonic(), 0.0)
        return min(left_s, self.tables.close_idle())

    def _submit(self, pid: int, look: Callable[[int], None]) -> None:
        if self._looks.submit(pid, partial(self._look_at, pid, look)):
            self._unfinished[pid] += 1

    def _look_at(self, pid: int, look: Callable[[int], None]) -> None:
        try:
            look(pid)
        except ProcessGoneError:
            self.forget(pid)
        except (OtelGpuError, OSError) as e:
            self._say(f"the stacks of process {pid} cannot be walked: {e}")
        finally:
            with self._lock:
                self._unfinished[pid] -= 1
                if not self._unfinished[pid]:
                    del self._unfinished[pid]

    def _load(self, pid: int) -> None:
        found = regions(self._parsers, pid)
        if not found:
            raise ProcessGoneError(f"process {pid} is gone")
        if len(found) > _MAX_REGIONS:
            found = most_useful(found)
        with self._lock:
            if (process := self._processes.get(pid)) is None:
                process = self._processes[pid] = WalkedProcess(pid, open_root(pid))
            mapped: dict[FileKey, Region] = {}
            for region in found:
                if region.key is not None:
                    mapped.setdefault(region.key, region)
            known, process.keys = process.keys, set(mapped)
            self.tables.release(known - process.keys, pid)
            # The vDSO may lie below a program that is linked to run anywhere without a loader.
            first = next((region for region in found if region.file is not None), None)
            used = [self._use(pid, key, region, first) for key, region in mapped.items()]
            used = [file for file in used if file.key not in known]
        self._read_shapes(used)
        with self._lock:
            if self._processes.get(pid) is not process:
                return
            process.biases = {r: bias for r in found if (bias := self._bias(r)) is not None}
            process.regions, process.index = found, RegionIndex(found)
            if process.python is not None and not _is_mapped(process.index, process.python):
                process.python = None  # it has become another program
            process.has_no_python = False
            self._publish(process)
            self.tables.want([f for f in used if f.shape is not None and f.shape.is_elf and not f.is_whole], pid)
        self._find_python(pid)

    def _use(self, pid: int, key: FileKey, region: Region, first: Region | None) -> FileTable:
        name = os.path.basename(region.raw_path)
        is_early = region == first or region.is_vdso or name.startswith(_EARLY)
        return self.tables.use(key, region.mapped(pid), is_early=is_early)

    def _bias(self, region: Region) -> int | None:
        file = None if region.key is None else self.tables.get(region.key)
        return None if file is None or file.shape is None else load_bias(file.shape, region)

    def _read_shapes(self, used: list[FileTable]) -> None:
        """Learn how files are laid out that are new."""
        new = [file for file in used if file.shape is None]
        for file in [file for file in new if isinstance(file.key, str)]:
            self._take_vdso(file)
            new.remove(file)
        if not new:
            return
        places = [next(iter(file.places.values())) for file in new]
        for outcome in each(self._parsers, shapes, places, None, SHAPES):
            file, found = new[outcome.number], outcome.answer
            with self._lock:
                if found is None:
                    file.why_not, file.is_whole, file.has_no_table = outcome.reason, True, True
                else:
                    file.shape = found
                    file.why_not = found.reason
                    file.is_whole = not found.is_elf

    def _take_vdso(self, file: FileTable) -> None:
        """The kernel's own code, which is in every process: nothing of a stranger's."""
        with self._lock:
            try:
                elf = ElfFile.from_bytes(own_vdso(), str(file.key))
                file.shape = shape_of(elf)
                self.tables.take(file, read_frames(elf))
            except (OtelGpuError, struct.error) as e:
                file.shape, file.why_not, file.is_whole = Shape(is_elf=False), str(e), True

    def _say(self, problem: str) -> None:
        """Warn of what cannot be walked: once, however many processes it concerns."""
        if problem not in self._said and len(self._said) < _MAX_SAID:
            self._said.add(problem)
            _log.warning("%s", problem)

    def _find_python(self, pid: int) -> None:
        """Find the process's interpreter: the first file that looks like one and can be walked."""
        process = self._processes.get(pid)
        if process is None or process.python is not None or process.has_no_python:
            return
        with self._lock:
            has_early_tables = self._has_early_tables(process)
        try:
            self._find_python_of(process)
        finally:
            process.is_python_sought |= has_early_tables

    def _find_python_of(self, process: WalkedProcess) -> None:
        interpreters: dict[FileKey, Interpreter] = {}
        with self._lock:
            is_whole, biases = True, process.biases
            for region, bias in biases.items():
                file = self.tables.get(region.key) if region.key is not None else None
                if file is None or region.key is None or region.key in interpreters:
                    continue
                is_whole &= file.is_whole
                if file.frames is not None and file.frames.why_no_python:
                    self._say(file.frames.why_no_python)
                if file.frames is not None and file.frames.python is not None:
                    interpreters[region.key] = Interpreter(file.frames.python, bias)
        if not interpreters:
            return
        memory = ProcessFile(process.pid, "mem")
        try:
            found = next(iter(self._parsers.run(find_python, [memory], list(interpreters.values()), limits=PYTHON)))
        except (WorkError, StopIteration) as e:
            _log.debug("process %d: %s", process.pid, e)
            self._try_again(process, _RETRY_STUCK_S)
            return
        if process.biases is not biases:
            return  # what it has mapped by now is looked at anyway
        if found.python is not None:
            with self._lock:
                process.python = found.python
                self._publish(process)
            self._tell(process.pid, found.python)
        elif not found.has_started:
            self._try_again(process, _RETRY_S)
        elif is_whole:
            process.has_no_python = True
            if found.reason:
                self._say(found.reason)

    def _tell(self, pid: int, python: PythonProcess) -> None:
        """Tell of a process's Python beside its looks: who is told may wait for a child, even one of a program that has gone."""
        with self._lock:
            if self._looks.submit(
                (pid, "python"), partial(self._look_at, pid, lambda pid: self._on_python(pid, python))
            ):
                self._unfinished[pid] += 1

    def _try_again(self, process: WalkedProcess, pause_s: float) -> None:
        process.pause_s = min(max(process.pause_s * _RETRY_GROWTH, pause_s), _MAX_RETRY_S)
        self._ask(process.pid, time.monotonic() + process.pause_s)

    def _publish(self, process: WalkedProcess) -> None:
        """Write the process's mappings as a new run, then point the process at it."""
        if self._processes.get(process.pid) is not process:
            return
        run = np.zeros(len(process.regions), UNWIND_MAPPING)
        for i, region in enumerate(process.regions):
            run[i] = self._entry(process, region)
        first = self._mappings.write(run)
        if first is None:
            _log.warning("no room for the %d mappings of process %d: its stacks are not walked", len(run), process.pid)
            return
        self._table.put(process.pid.to_bytes(4, "little"), self._pack(process, first, len(run)))
        self._mappings.retire(process.first, process.slots)
        process.first, process.slots = first, len(run)

    def _entry(self, process: WalkedProcess, region: Region) -> tuple[int, ...]:
        file = None if region.key is None else self.tables.get(region.key)
        is_no_elf = file is not None and file.shape is not None and not file.shape.is_elf
        if region.key is None or is_no_elf:
            # Memory that holds code made at run time, also under the name of /dev/zero or a memfd.
            return region.start, region.end, 0, 0, 0, 0, MAPPING_MADE
        if file is None or file.shape is None or region not in process.biases:
            return region.start, region.end, 0, 0, 0, 0 if file is None else file.number, 0
        bias = (process.biases[region] + file.shape.base) & (1 << 64) - 1
        flags = (MAPPING_NO_TABLE if file.has_no_table else 0) | (
            MAPPING_FRAME_POINTERS if file.keeps_frame_pointers else 0
        )
        return region.start, region.end, bias, file.first_row, file.rows, file.number, flags

    def _pack(self, process: WalkedProcess, first: int, count: int) -> bytes:
        python = process.python
        if python is None:
            return _PROCESS.pack(first, count, 0, 0, 0, 0, 0, *[0] * 8, b"")
        ranges = [address for pair in python.eval_ranges[:EVAL_RANGES] for address in pair]
        ranges += [0] * (2 * EVAL_RANGES - len(ranges))
        return _PROCESS.pack(
            first,
            count,
            python.thread_state,
            len(python.eval_ranges),
            python.thread_offset,
            python.thread_module,
            python.interpreters,
            *ranges,
            python.layout.pack(),
        )


def _is_mapped(index: RegionIndex, python: PythonProcess) -> bool:
    return any(index.at(start) is not None for start, _ in python.eval_ranges)


def _close_root(process: WalkedProcess) -> None:
    if process.root is not None:
        os.close(process.root)
        process.root = None
