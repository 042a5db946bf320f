"""What must the kernel know to walk a process's stacks? Tables of its files, its mappings, its Python.

Tables are compiled in a thread, small files first, and shared by all processes that map the file. A process
is walkable from the moment it is known; its stacks grow complete as its tables arrive.
"""

from __future__ import annotations

import logging
import os
import queue
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from ..bpf.maps import BpfMap
from ..elf import ElfFile
from ..errors import ElfError, OtelGpuError, ProcessGoneError
from ..symbols.process_memory import MemoryFault, ProcessMemory
from .address_space import Region, load_bias, lowest_vaddr, open_elf, open_root, regions
from .cache import TableCache
from .extents import Extents
from .frame_pointers import describes_most, keeps_frame_pointers
from .python_layout import UnsupportedPythonError
from .python_process import NotStartedError, PythonProcess, locate
from .python_text import PythonBinary, analyse_python
from .rows import ROW, UnwindError
from .shared_array import SharedArray

_log = logging.getLogger(__name__)

MAPPING = np.dtype(
    [
        ("start", "<u8"),
        ("end", "<u8"),
        ("bias", "<u8"),
        ("first_row", "<u4"),
        ("rows", "<u4"),
        ("file", "<u4"),
        ("flags", "<u4"),
    ]
)
_MADE, _NO_TABLE, _FRAME_POINTERS = 1, 2, 4
"""ebpf/abi.h: MAPPING_*."""
_PROCESS = struct.Struct("<IIIIqQQ8Q80s")
_EVAL_RANGES = 4
_MAX_REGIONS = 8192
_MAX_SAID = 100
_RETRY_S = 0.2
_RETRIES = 25
_LOOK_AGAIN_S = 0.25
_WALKS_END_S = 1.0
"""After so long no walk is left that began with what has been replaced."""
_NO_ROOM = "the kernel's table is full; a larger `table_rows` holds more"

FileKey = tuple[int, int, int] | str


@dataclass(slots=True)
class _File:
    """One file's table in the kernel."""

    number: int
    base: int = 0
    first_row: int = 0
    rows: int = 0
    users: int = 0
    python: PythonBinary | None = None
    code_type: int = 0
    flags: int = 0
    why_not: str | None = None
    is_no_elf: bool = False
    """Memory that has a number but holds code made at run time, as /dev/zero and memfds do."""
    loaded: bool = False
    crowded_out: bool = False
    """Its table had no room, or had to make room."""


@dataclass(slots=True)
class WalkedProcess:
    """One process as the kernel knows it."""

    pid: int
    root: int | None = None
    """Its root directory, open: what its files are found by once it has ended."""
    regions: list[Region] = field(default_factory=list)
    biases: dict[Region, int] = field(default_factory=dict)
    python: PythonProcess | None = None
    first: int = 0
    slots: int = 0
    keys: set[FileKey] = field(default_factory=set)
    looked_at: float = 0.0
    met: set[Region] = field(default_factory=set)
    """Code that stood on a stack; written by who names the stacks."""


def most_useful(found: list[Region]) -> list[Region]:
    """Return as many regions as are kept of one process: the largest of files, in their order.

    Code that was made at run time is known as such without being listed.
    """
    kept = sorted((r for r in found if r.file is not None or r.is_vdso), key=lambda r: (r.start - r.end, r.start))
    return sorted(kept[:_MAX_REGIONS], key=lambda r: r.start)


class UnwindLoader:
    """Owns the kernel's unwinding maps."""

    def __init__(self, rows: BpfMap, mappings: BpfMap, processes: BpfMap, cache: TableCache | None = None) -> None:
        self._cache = cache or TableCache()
        self._rows = SharedArray(rows, ROW)
        self._mappings = SharedArray(mappings, MAPPING)
        self._row_space = Extents(rows.max_entries)
        self._mapping_space = Extents(mappings.max_entries)
        self._table = processes
        self._files: dict[FileKey, _File] = {}
        self._numbers = 0
        self._processes: dict[int, WalkedProcess] = {}
        self._lock = threading.RLock()
        self._work: queue.Queue[int | None] = queue.Queue()
        self._waiting: set[int] = set()
        self._said: set[str] = set()
        self._retired: deque[tuple[float, Extents, int, int]] = deque()
        self._thread = threading.Thread(target=self._run, name="otel-gpu-unwind", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop loading; the maps go with their object."""
        self._work.put(None)
        self._thread.join(timeout=10)
        for process in self._processes.values():
            _close_root(process)

    def watch(self, pid: int) -> None:
        """Make a process walkable, or look at it again after it mapped more code."""
        # A program that starts maps hundreds of files: one look serves for all it has mapped by then.
        with self._lock:
            if pid in self._waiting:
                return
            self._waiting.add(pid)
        self._work.put(pid)

    def look_again(self, pid: int) -> None:
        """Say that a walk met code in no known mapping, as a JIT makes it; at most a few looks a second follow."""
        process = self._processes.get(pid)
        if process is not None and time.monotonic() - process.looked_at > _LOOK_AGAIN_S:
            process.looked_at = time.monotonic()
            self.watch(pid)

    def is_crowded(self) -> bool:
        """Tell whether some file's table has no room."""
        return any(f.crowded_out for f in self._files.copy().values())

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything asked for so far is loaded; False when the time is up first."""
        deadline = time.monotonic() + timeout_s
        while self._work.unfinished_tasks:
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
            process = self._processes.pop(pid, None)
            if process is None:
                return
            _close_root(process)
            self._table.delete(pid.to_bytes(4, "little"))
            self._release(process.keys)
            self._retire(self._mapping_space, process.first, process.slots)

    def known(self) -> int:
        """Return how many processes are known."""
        return len(self._processes)

    def problems(self) -> dict[str, str]:
        """Return why files have no table, by path."""
        with self._lock:
            return {str(k): f.why_not for k, f in self._files.items() if f.why_not}

    def _run(self) -> None:
        retries: dict[int, int] = {}
        while (pid := self._work.get()) is not None:
            with self._lock:
                self._waiting.discard(pid)
            try:
                self._load(pid)
                retries.pop(pid, None)
            except NotStartedError:
                retries[pid] = retries.get(pid, 0) + 1
                if retries[pid] < _RETRIES:
                    threading.Timer(_RETRY_S, self.watch, (pid,)).start()
            except ProcessGoneError:
                self.forget(pid)
            except (OtelGpuError, OSError) as e:
                _log.warning("the stacks of process %d cannot be walked: %s", pid, e)
            except Exception:  # noqa: BLE001 - what a hostile process makes go wrong must not cost the others
                _log.exception("the stacks of process %d cannot be walked", pid)
            finally:
                self._work.task_done()

    def _load(self, pid: int) -> None:
        found = regions(pid)
        if len(found) > _MAX_REGIONS:
            found = most_useful(found)
        with self._lock:
            if (process := self._processes.get(pid)) is None:
                process = self._processes[pid] = WalkedProcess(pid, open_root(pid))
            known = set(process.regions)
            if known and not known & set(found):
                # Nothing is where it was: it has become another program.
                self._release(process.keys)
                process.keys, process.biases, process.python = set(), {}, None
                process.met = set()
            process.regions = found
            fresh: dict[FileKey, list[Region]] = {}
            for region in found:
                if region not in known and (region.file is not None or region.is_vdso):
                    fresh.setdefault(self._key(region), []).append(region)
            for key, regions_of_file in fresh.items():
                self._open(process, key, regions_of_file)
            still = set(found)
            process.biases = {r: b for r, b in process.biases.items() if r in still}
            self._publish(process)
        # Small files first: the program, libc and the interpreter are what most stacks need.
        for key, region in sorted(
            ((self._key(r), r) for r in found if r in process.biases), key=lambda kr: kr[1].end - kr[1].start
        ):
            file = self._files[key]
            if not file.loaded or (file.crowded_out and region in process.met):
                self._compile(pid, key, region)
                with self._lock:
                    self._publish(process)
        self._find_python(process)
        with self._lock:
            self._publish(process)

    def _key(self, region: Region) -> FileKey:
        return region.file if region.file is not None else region.path

    def _open(self, process: WalkedProcess, key: FileKey, found: list[Region]) -> None:
        if key not in self._files:
            self._numbers += 1
            self._files[key] = _File(self._numbers)
        file = self._files[key]
        if key not in process.keys:
            process.keys.add(key)
            file.users += 1
        try:
            with open_elf(process.pid, found[0]) as elf:
                process.biases.update((region, load_bias(elf, region)) for region in found)
                file.base = lowest_vaddr(elf)
        except ElfError as e:
            file.why_not, file.is_no_elf = str(e), True
            return
        except OSError as e:
            file.why_not = str(e)

    def _compile(self, pid: int, key: FileKey, region: Region) -> None:
        file = self._files[key]
        file.loaded = True
        try:
            with open_elf(pid, region) as elf:
                self._read_python(elf, file)
                try:
                    table = self._cache.table(elf)
                except UnwindError as e:
                    file.why_not = str(e)
                    file.flags = _NO_TABLE | (_FRAME_POINTERS if keeps_frame_pointers(elf) else 0)
                    return
                if not describes_most(table, elf) and keeps_frame_pointers(elf):
                    file.flags = _FRAME_POINTERS
        except (OtelGpuError, OSError) as e:
            file.why_not, file.flags = str(e), _NO_TABLE
            return
        count = len(table.rows) + 1
        has_room = not file.crowded_out or self._make_room(count)
        with self._lock:
            self._reuse_retired()
            first = self._row_space.take(count)
            file.crowded_out = first is None and has_room
            if first is None:
                file.why_not = _NO_ROOM
                return
            if file.why_not == _NO_ROOM:
                file.why_not = None
            self._rows.write(first, table.rows)
            # From end_pc on nothing is known.
            self._rows.write(first + len(table.rows), np.array([(table.end_pc, 0, 0, 0)], ROW))
            file.first_row, file.rows = first, count

    def _make_room(self, count: int) -> bool:
        """Drop tables that no stack has needed so far, the largest first, until one that was needed fits."""
        with self._lock:
            met = {self._key(r) for p in self._processes.values() for r in p.met.copy()}
            unmet = [f for key, f in self._files.items() if f.rows and key not in met]
            space, dropped = self._row_space.copy(), []
            for file in sorted(unmet, key=lambda f: -f.rows):
                space.give_back(file.first_row, file.rows)
                dropped.append(file)
                if space.longest >= count:
                    break
            else:
                return space.longest >= count
            for file in dropped:
                self._retire(self._row_space, file.first_row, file.rows)
                file.first_row = file.rows = 0
                file.crowded_out, file.why_not = True, _NO_ROOM
            for process in self._processes.values():
                self._publish(process)
        time.sleep(_WALKS_END_S * 1.1)
        return True

    def _read_python(self, elf: ElfFile, file: _File) -> None:
        try:
            file.python = analyse_python(elf)
        except UnsupportedPythonError as e:
            self._say(str(e))
            return
        if file.python is not None:
            file.code_type = next((s.value for s in elf.symbols() if s.name == "PyCode_Type"), 0)

    def _say(self, problem: str) -> None:
        """Warn of an interpreter that cannot be walked: once, however many processes run it."""
        if problem not in self._said and len(self._said) < _MAX_SAID:
            self._said.add(problem)
            _log.warning("%s", problem)

    def _find_python(self, process: WalkedProcess) -> None:
        """Find the process's interpreter: the first file that looks like one and can be walked."""
        if process.python is not None:
            return
        early: NotStartedError | None = None
        tried: set[FileKey] = set()
        for region, bias in process.biases.items():
            key = self._key(region)
            binary = self._files[key].python
            if binary is None or key in tried:
                continue
            tried.add(key)
            try:
                with ProcessMemory(process.pid) as memory:
                    process.python = locate(binary, bias, memory, self._files[key].code_type)
            except NotStartedError as e:
                early = e
            except UnsupportedPythonError as e:
                self._say(str(e))
            except (OtelGpuError, MemoryFault) as e:
                _log.debug("process %d: %s", process.pid, e)
            else:
                return
        if early is not None:
            raise early

    def _publish(self, process: WalkedProcess) -> None:
        """Write the process's mappings as a new run, then point the process at it."""
        count = len(process.regions)
        self._reuse_retired()
        first = self._mapping_space.take(count) if count else 0
        if first is None:
            _log.warning("no room for the %d mappings of process %d: its stacks are not walked", count, process.pid)
            return
        run = np.zeros(count, MAPPING)
        for i, region in enumerate(process.regions):
            file = self._files.get(self._key(region))
            entry = (region.start, region.end, 0, 0, 0, 0, 0)
            if not (region.is_vdso or region.file) or (file is not None and file.is_no_elf):
                entry = (region.start, region.end, 0, 0, 0, 0, _MADE)
            elif file is not None and region in process.biases:
                bias = (process.biases[region] + file.base) & (1 << 64) - 1
                entry = (region.start, region.end, bias, file.first_row, file.rows, file.number, file.flags)
            run[i] = entry
        self._mappings.write(first, run)
        self._table.put(process.pid.to_bytes(4, "little"), self._pack(process, first, count))
        self._retire(self._mapping_space, process.first, process.slots)
        process.first, process.slots = first, count

    def _pack(self, process: WalkedProcess, first: int, count: int) -> bytes:
        python = process.python
        if python is None:
            return _PROCESS.pack(first, count, 0, 0, 0, 0, 0, *[0] * 8, b"")
        ranges = [address for pair in python.eval_ranges[:_EVAL_RANGES] for address in pair]
        ranges += [0] * (2 * _EVAL_RANGES - len(ranges))
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

    def _release(self, keys: set[FileKey]) -> None:
        for key in keys:
            file = self._files[key]
            file.users -= 1
            if not file.users:
                self._retire(self._row_space, file.first_row, file.rows)
                del self._files[key]

    def _retire(self, space: Extents, first: int, slots: int) -> None:
        if slots:
            self._retired.append((time.monotonic(), space, first, slots))

    def _reuse_retired(self) -> None:
        """Free old runs once no walk can still be in them."""
        now = time.monotonic()
        while self._retired and now - self._retired[0][0] > _WALKS_END_S:
            _, space, first, slots = self._retired.popleft()
            space.give_back(first, slots)


def _close_root(process: WalkedProcess) -> None:
    if process.root is not None:
        os.close(process.root)
        process.root = None
