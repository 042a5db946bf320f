"""What is a kernel called that was loaded before we looked? Told by where it is launched from.

Three witnesses, all of them constants of the program: the variables in which programs keep the handles of
their kernels (CUDA 12.4 and later), the host function around the launching call, and the host function's
stub, whose address the runtime still holds on its stack. Where they do not agree on one name, there is none.

Libraries that choose their kernels from tables or ask the driver for them, as cuBLASLt does both, have no function
that mentions the stub. There the program's own records are searched (records.py), for all such handles at once, when
nothing else is left to do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import struct
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..discovery import procfs
from ..elf import PT_LOAD, ElfFile
from ..errors import ElfError, OtelGpuError
from ..printable import escaped
from ..process.files import FileId
from ..process.memory import MemoryFault, ProcessMemory
from .cache import SymbolCache
from .driver_names import DriverNames
from .kernel_strings import KernelStrings
from .kernels import KernelBook, Program
from .launches import Launch, Module, caller, held, launching_file, stub_name, told_by_stack, unread_launcher
from ..process.memory import Memory, ProcessMemory
from .records import told_by_records
from .residents import allocated, find_places, variables
from .stubs import StubMap, read_stub_map
from .words import read_words

_log = logging.getLogger(__name__)
_MAX_QUEUE = 10_000
_MAX_BATCH = 1_000
_MAX_CALLERS = 16_384
"""Kernels of one program whose launching files are kept."""
_CACHE_KIND = "stub-map"
_FATBINS = (".nv_fatbin", "__nv_relfatbin")
_REREAD_S = 1.0
"""How often the handle variables of a program are read again while unknown handles turn up."""
_QUIET_S = 0.2
"""How long no launch must have come before records are searched: what they are judged by should be known first."""
_SEARCH_SHARE = 0.1
"""The part of the time that may be spent on searching records."""
_MAX_PARKED = 4_096
"""Launches that wait for the records."""
_MAX_JUDGES = 256
"""Handles with known names, of one program, by which its records are judged."""
_PATIENCE_S = 60.0
"""How long a name may be looked for before nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class _Judgement:
    """A program, with known kernels, that shows what its driver's records are like; it called the driver at `ip`."""

    program: Program
    ip: int


@dataclass(slots=True)
class _Known:
    """What is known of one program's modules."""

    mapped: list[procfs.FileMapping] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    handles_read: float = 0.0
    told: dict[int, str] = field(default_factory=dict)
    """Some of the names that did not come from records."""
    handles: dict[int, tuple[StubMap, Any]] = field(default_factory=dict)
    """What the handle variables of each module held when they were last read, by the module's bias."""
    callers: dict[int, str | None] = field(default_factory=dict)
    """The files that launch what had no name when it was launched; None where none is on the stack."""

    def with_stubs(self) -> list[Module]:
        """Return the modules that have kernels: of hundreds, a few."""
        return [module for module in self.modules if module.has_kernels]

    def put(self, read: Module, stubs: StubMap) -> None:
        """Note the kernels of a file, which may be mapped in several parts."""
        self.modules = [replace(m, stubs=stubs) if m.extent == read.extent else m for m in self.modules]

    def next_unread(self, beside: Collection[str]) -> Module | None:
        """Return a module whose kernels are still to be read: one beside files first, else the smallest."""
        unread = [m for m in self.modules if m.stubs is None and m.file is not None]
        folders = {os.path.dirname(path) for path in beside}
        return min(
            unread,
            key=lambda m: (os.path.dirname(m.file.path if m.file else "") not in folders, m.extent[1] - m.extent[0]),
            default=None,
        )

    def new_handles(self, module: Module, memory: Memory) -> Iterator[tuple[int, str]]:
        """Yield the handles, with their kernels' names, that a module's variables hold and did not hold the last time."""
        import numpy as np

        stubs = module.stubs
        if stubs is None or not stubs.handle_variables:
            return
        values = read_words(memory, np.frombuffer(stubs.handle_variables, np.int64) + module.bias)
        of, before = self.handles.get(module.bias, (None, None))
        self.handles[module.bias] = stubs, values
        # Until a device is there, the runtime keeps the stub itself.
        is_handle = (values != 0) & ~np.isin(values.view(np.int64) - module.bias, np.frombuffer(stubs.stubs, np.int64))
        for at in np.flatnonzero(is_handle & (values != before) if of is stubs else is_handle).tolist():
            name = stubs.handle_name(at)
            if name is not None:
                yield int(values[at]), name

    def tell(self, handle: int, name: str) -> None:
        """Note a name by which records can be judged."""
        if len(self.told) < _MAX_JUDGES or handle in self.told:
            self.told[handle] = name


class Origins:
    """Names kernels by their launches, in a thread of its own."""

    def __init__(self, kernels: KernelBook, cache: SymbolCache | None = None) -> None:
        self._kernels = kernels
        self._cache = cache or SymbolCache()
        self._driver = DriverNames(kernels, self._cache)
        self._queue: queue.Queue[Launch | _Judgement | None] = queue.Queue(_MAX_QUEUE)
        self._programs: dict[Program, _Known] = {}
        self._stubs: dict[FileId | None, StubMap] = {}
        self._waiting: dict[tuple[Program, int], list[float]] = {}
        self._parked: list[Launch] = []
        self._search_at = 0.0
        self._read_s = 0.0
        """How long libraries were read for during the last search."""
        self._is_reading = False
        """Whether it was said that kernels wait for names."""
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self.dropped = 0
        """Launches that were not looked at, because too many waited."""
        self._thread = threading.Thread(target=self._run, name="otel-gpu-names", daemon=True)
        self._thread.start()

    def submit(self, launch: Launch) -> None:
        """Queue a launch of a kernel that may be unknown."""
        if self._kernels.name(launch.program, launch.handle) is not None:
            self._witness(launch)
            return
        key = (launch.program, launch.handle)
        with self._lock:
            self._waiting.setdefault(key, []).append(time.monotonic())
        try:
            self._queue.put_nowait(launch)
        except queue.Full:
            self.dropped += 1
            self._done(key)

    def unloaded(self, program: Program) -> None:
        """Note that something was unloaded whose kernels nobody knows."""
        self._driver.doubt(program)

    def _witness(self, launch: Launch) -> None:
        if self._driver.witnessed(launch.program, launch.handle):
            with contextlib.suppress(queue.Full):  # others will be
                self._queue.put_nowait(_Judgement(launch.program, launch.ip))

    def settle(self, timeout_s: float) -> None:
        """Wait until everything submitted so far is looked at, or the time is up."""
        deadline = time.monotonic() + timeout_s
        while self._queue.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)

    def pending(self, program: Program, handle: int) -> bool:
        """Say whether a kernel's name may yet turn up."""
        with self._lock:
            since = self._waiting.get((program, handle))
            return since is not None and time.monotonic() - since[0] < _PATIENCE_S

    def unnamed(self) -> tuple[int, int]:
        """Return how many kernels wait for a name, and how many of living programs were looked for in vain."""
        with self._lock:
            waiting = set(self._waiting)
        unknown = 0
        for program, known in list(self._programs.items()):
            for handle in list(known.callers):
                if self._kernels.name(program, handle) is not None:
                    known.callers.pop(handle, None)
                elif (program, handle) not in waiting:
                    unknown += 1
        return len(waiting), unknown

    def caller(self, program: Program, handle: int) -> str | None:
        """Return the file that launches an unknown kernel."""
        known = self._programs.get(program)
        return None if known is None else known.callers.get(handle)

    def forget(self, program: Program) -> None:
        """Drop a program that has ended."""
        self._programs.pop(program, None)
        self._driver.forget(program)

    def close(self) -> None:
        """Stop; what still waits stays unknown."""
        self._closing.set()
        with contextlib.suppress(queue.Full):  # who has so much to do need not be woken
            self._queue.put_nowait(None)
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                first = self._queue.get(timeout=_QUIET_S if self._parked else None)
            except queue.Empty:
                if time.monotonic() >= self._search_at:
                    self._search_records()
            else:
                self._work_on_all([first, *self._taken()])
            if self._is_reading and not self._queue.unfinished_tasks:
                self._is_reading = False
                _log.info("names of kernels: none waits any more, %d are not known", self.unnamed()[1])

    def _taken(self) -> list[Launch | _Judgement | None]:
        """Take from the queue what is there now."""
        taken: list[Launch | _Judgement | None] = []
        with contextlib.suppress(queue.Empty):
            while len(taken) < _MAX_BATCH:
                taken.append(self._queue.get_nowait())
        return taken

    def _work_on_all(self, batch: list[Launch | _Judgement | None]) -> None:
        self._note_callers([item for item in batch if isinstance(item, Launch)])
        for item in batch:
            if self._closing.is_set():
                return
            if item is not None:
                self._work_on(item)

    def _work_on(self, item: Launch | _Judgement) -> None:
        if isinstance(item, _Judgement):
            self._driver.judge(item.program, item.ip)
            self._queue.task_done()
            return
        try:
            parked = self._look(item) and len(self._parked) < _MAX_PARKED
        except (OtelGpuError, OSError, struct.error) as e:
            parked = False
            _log.debug("kernel %#x of process %d: %s", item.handle, item.program[0], e)
        if parked:
            self._parked.append(item)
        else:
            self._finish(item)

    def _note_callers(self, launches: list[Launch]) -> None:
        """Note from where unknown kernels are launched, before the first library is read: that can take seconds."""
        for program in {launch.program for launch in launches}:
            known = self._programs.setdefault(program, _Known())
            try:
                self._refresh(program, known)
            except (OtelGpuError, OSError, struct.error) as e:
                _log.debug("modules of process %d: %s", program[0], e)
            for launch in launches:
                if launch.program == program and len(known.callers) < _MAX_CALLERS:
                    known.callers.setdefault(launch.handle, launching_file(launch, known.modules))

    def _finish(self, launch: Launch) -> None:
        self._done((launch.program, launch.handle))
        self._queue.task_done()

    def _done(self, key: tuple[Program, int]) -> None:
        with self._lock:
            since = self._waiting[key]
            since.pop(0)
            if not since:
                del self._waiting[key]

    def _look(self, launch: Launch) -> bool:
        """Name a launch's kernel; say whether only records, the driver's or the program's, may still do so."""
        program = launch.program
        if self._is_named(launch):
            return False
        known = self._programs.setdefault(program, _Known())
        # Only the libraries that launch are read at first: of those that a PyTorch process maps, few do.
        while (module := unread_launcher(launch, known.modules)) is not None:
            self._read_library(program, known, module)
        self._read_handles(program, known)
        if self._is_named(launch):
            return False
        name = told_by_stack(launch, known.modules)
        if name is not None:
            # Libraries keep what they were given first; what they launch may stand for that.
            original = self._kernels.original(program, launch.handle)
            for handle in (launch.handle, original):
                self._kernels.learn(program, handle, name)
                known.tell(handle, name)
            self._witness(launch)
            return False
        return True

    def _is_named(self, launch: Launch) -> bool:
        """Say whether a launch's kernel has got its name since the launch, which then is a witness."""
        if self._kernels.name(launch.program, launch.handle) is None:
            return False
        self._witness(launch)
        return True

    def _search_records(self) -> None:
        """Name the parked launches' kernels by the records of their programs, as far as that goes."""
        begun, self._read_s = time.monotonic(), 0.0
        parked, self._parked = self._parked, []
        try:
            for program in {launch.program for launch in parked}:
                self._search_records_of(program, [launch for launch in parked if launch.program == program])
        finally:
            # Libraries are read once, however many searches there are.
            spent = time.monotonic() - begun - self._read_s
            self._search_at = time.monotonic() + spent / _SEARCH_SHARE
            for launch in parked:
                self._finish(launch)

    def _search_records_of(self, program: Program, launches: list[Launch]) -> None:
        with self._lock:
            launched = {launch.handle: self._waiting[program, launch.handle][-1] for launch in launches}
        named = self._driver.name(program, launches[-1].ip, launched)
        launches = [launch for launch in launches if launch.handle not in named]
        known = self._programs.get(program)
        if known is None:
            return
        launches = self._told_by_other_libraries(program, known, launches)
        if not known.told or not launches:
            return
        possible: dict[int, frozenset[str]] = {}
        callers: dict[int, Module] = {}
        for launch in launches:
            names = held(launch, known.modules)
            module = caller(launch, known.modules)
            for handle in (launch.handle, self._kernels.original(program, launch.handle)):
                possible[handle] = possible.get(handle, names) & names
                if module is not None:
                    callers[handle] = module
        stacks = {launch.sp for launch in launches}
        try:
            with ProcessMemory(program[0]) as memory:
                names_found = self._told_by_variables(known, callers, memory)
            places = find_places(program[0], {*possible, *known.told}, allocated(program[0], stacks))
        except (OtelGpuError, OSError) as e:
            _log.debug("records of process %d: %s", program[0], e)
            return
        names_found |= told_by_records(places, known.told, possible, partial(stub_name, known.with_stubs()))
        for handle, name in names_found.items():
            # The driver may have been asked for the kernel meanwhile, and that is the better witness.
            if self._kernels.name(program, handle) is None:
                self._kernels.learn(program, handle, name, derived=True)

    def _told_by_other_libraries(self, program: Program, known: _Known, launches: list[Launch]) -> list[Launch]:
        """Read the libraries that do not launch: the handle may be in a variable of one. Return what stays unnamed."""
        begun = time.monotonic()
        callers = (caller(launch, known.modules) for launch in launches)
        beside = {module.file.path for module in callers if module is not None and module.file is not None}
        while launches and (module := known.next_unread(beside)) is not None and not self._closing.is_set():
            self._read_library(program, known, module)
            self._read_handles(program, known)
            launches = [launch for launch in launches if not self._is_named(launch)]
            # What is launched meanwhile does not wait for all of them.
            self._work_on_all(self._taken())
        self._read_s += time.monotonic() - begun
        return launches

    def _told_by_variables(self, known: _Known, callers: dict[int, Module], memory: ProcessMemory) -> dict[int, str]:
        """Return what the libraries that launch unknown kernels say of them in their own variables."""
        found: dict[int, str] = {}
        for module in {m.extent: m for m in callers.values() if m.has_kernels}.values():
            assert module.stubs is not None
            wanted = {handle: None for handle, caller in callers.items() if caller.extent == module.extent}
            mappings = variables(memory.pid, module.extent)
            places = find_places(memory.pid, {*wanted, *known.told}, mappings)
            names = KernelStrings(memory, module.extent, module.stubs.names)
            found |= told_by_records(places, known.told, wanted, names.at)
        return found

    def _refresh(self, program: Program, known: _Known) -> None:
        """Find the program's modules, if there are other ones than the last time."""
        mappings = procfs.executable_mappings(program[0])
        if mappings == known.mapped:
            return
        before = {module.file: module for module in known.modules}
        modules = (before.get(mapping) or self._module(program[0], mapping) for mapping in mappings)
        known.modules = [module for module in modules if module is not None]
        known.mapped = mappings
        known.handles_read = 0.0

    def _module(self, pid: int, mapping: procfs.FileMapping) -> Module | None:
        try:
            with ElfFile(_opener(pid, mapping)) as elf:
                bias = mapping.start - elf.code_vaddr(mapping.offset)
                loaded = [s for s in elf.segments if s.type == PT_LOAD]
                extent = bias + min(s.vaddr for s in loaded), bias + max(s.vaddr + s.mem_size for s in loaded)
                may_have_kernels = any(elf.section(s) is not None for s in _FATBINS)
                stubs = self._stubs.get(elf.id) if may_have_kernels else StubMap()
        except (ElfError, OSError):
            return None
        return Module(mapping.start, mapping.end, bias, os.path.basename(mapping.path), stubs, extent, mapping)

    def _read_library(self, program: Program, known: _Known, module: Module) -> None:
        """Read the kernels of a module's file; none where it cannot be opened any more."""
        assert module.file is not None
        try:
            with ElfFile(_opener(program[0], module.file)) as elf:
                known.put(module, self._stub_map(elf))
        except (ElfError, OSError) as e:
            _log.debug("kernels in %s: %s", escaped(module.name), e)
            known.put(module, StubMap())
        # Its variables are still to be looked at.
        known.handles_read = 0.0

    def _stub_map(self, elf: ElfFile) -> StubMap:
        stubs = self._stubs.get(elf.id) or self._cache.read(elf, _CACHE_KIND, StubMap)
        if stubs is None:
            if not self._is_reading:
                self._is_reading = True
                waiting, _ = self.unnamed()
                _log.info("names of kernels: %d wait, libraries are read for the first time", waiting)
            stubs = read_stub_map(elf)
            self._cache.write(elf, _CACHE_KIND, stubs)
        self._stubs[elf.id] = stubs
        return stubs

    def _read_handles(self, program: Program, known: _Known) -> None:
        """Learn the handles that the program's variables hold now."""
        if time.monotonic() - known.handles_read < _REREAD_S:
            return
        known.handles_read = time.monotonic()
        with ProcessMemory(program[0]) as memory:
            for module in {m.bias: m for m in known.modules if m.stubs is not None}.values():
                for handle, name in known.new_handles(module, memory):
                    self._kernels.learn(program, handle, name)
                    known.tell(handle, name)


def _opener(pid: int, mapping: procfs.FileMapping) -> str:
    opener = mapping.opener(pid)
    return opener if os.path.exists(opener) else f"/proc/{pid}/root{mapping.path}"
