"""What is a kernel called that was loaded before we looked? Told by where it is launched from.

Three sources, all of them constants of the program: the variables in which programs keep the handles of
their kernels (CUDA 12.4 and later), the host function around the launching call, and the host function's
stub, whose address the runtime still holds on its stack. Where they do not agree on one name, there is none.

Libraries that ask the driver for their kernels, as cuBLASLt does, have no such constants: the driver's records are asked
then (driver_names.py). Only what these do not tell either is looked for in the libraries that do not launch, and at last
in the program's own records (records.py), for all such handles at once.
"""

from __future__ import annotations

import contextlib
import logging
import math
import struct
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from ....discovery.program_id import ProgramId
from ....errors import OtelGpuError, ProcessGoneError
from ....runtime.supervision import Worker
from ....sandbox.files import File, FileId, MappedFile
from ....sandbox.mappings import mappings_of_all
from ....sandbox.parsers import Parsers
from ....signals.structs import Frozen
from .cache import SymbolCache
from .driver_names import DriverNames
from .driver_paths import OnPaths
from .fair_queue import FairQueue
from .hip_kernels import HostPointer, kernels_at
from .kernel_libraries import KernelLibraries
from .kernels import KernelTable
from .launches import Launch, Module, module_at, told_by_stack, unread_launcher
from .program_memory import ProgramMemory
from .program_records import told_by_program
from .programs import KnownProgram
from .stub_map import StubMap

_log = logging.getLogger(__name__)
_MAX_QUEUE = 20_000
"""Launches of all programs that are to be looked at, or wait for a library or for records."""
_MAX_BATCH = 1_000
_QUIET_S = 0.2
"""How long no launch must have come before records are searched: what they are judged by should be known first."""
_NOISY_S = 1.0
"""How long that is waited for where launches never cease."""
_SEARCH_SHARE = 0.1
"""The part of the time that may be spent on searching records."""
_CLOSES_S = 5.0
_IDLE_S = 5.0
"""How often it is looked whether a program's memory is held in vain."""
_REMAP_S = 0.1
"""How often it is looked what is mapped, for pointers that are in no file yet."""
_MAX_EXPECTED, _MAX_EXPECTED_OF_ONE = 65_536, 4_096
"""Mapped files that are noted ahead, of all programs and of one; vLLM maps 700. Of one with more none are."""
_MAX_WASTED_S = 30.0
"""How long files of one program may be read in vain before the others of it are not read any more."""
_MAX_JUDGED = 8
"""Programs that are to be compared to what is known of their driver at a time."""
_MAX_OPEN = 16
"""Programs whose memory is held at a time, by a child for each."""
_DEADLINE_S = 60.0
"""How long a name may be looked for before nobody waits for it any more."""
_FAILURES = (OtelGpuError, OSError, struct.error)


class _Judgement(Frozen):
    """A program, with known kernels, that shows what its driver's records are like; it called the driver at `ip`."""

    program: ProgramId
    ip: int


class _Expected(Frozen):
    """A program that may end before it can be seen what it had mapped."""

    program: ProgramId


_Work = Launch | HostPointer | _Judgement


class KernelNameResolver:
    """Names kernels by their launches, in a thread of its own."""

    def __init__(
        self,
        kernels: KernelTable,
        parsers: Parsers,
        cache: SymbolCache | None = None,
        runs: Callable[[ProgramId], bool] = lambda _program: True,
        mapped_before: Callable[[ProgramId], Sequence[MappedFile]] = lambda _program: (),
        on_paths: OnPaths = lambda _driver, _paths: None,
    ) -> None:
        """Take how to ask whether a program `runs`, as its process may have become another one, and what it had `mapped_before`.

        The latter is told of programs that were there before their probes. `on_paths` is called with how a driver's records
        lead to names, when that is known.
        """
        cache = cache or SymbolCache()
        self._runs = runs
        self._mapped_before = mapped_before
        self._kernels = kernels
        self._parsers = parsers
        self._driver = DriverNames(kernels, parsers, cache, on_paths)
        self._libraries = KernelLibraries(parsers, cache, self._say_reading)
        self._queue: FairQueue[_Work | _Expected] = FairQueue(_MAX_QUEUE)
        self._programs: dict[ProgramId, KnownProgram] = {}
        self._memories: dict[ProgramId, ProgramMemory] = {}
        self._held: OrderedDict[ProgramId, ProgramMemory] = OrderedDict()
        """Those that may be held by a child, the one that was asked last at the end."""
        self._waiting: dict[tuple[ProgramId, int], list[float]] = {}
        self._drivers: deque[tuple[FileId, File]] = deque()
        """Those that are to be read, for their probes are being placed."""
        self._batch: deque[_Work] = deque()
        """What was taken from the queue and is to be looked at."""
        self._pointers: OrderedDict[ProgramId, list[HostPointer]] = OrderedDict()
        """Launches by host pointers, which files have names for."""
        self._expected: OrderedDict[ProgramId, list[MappedFile]] = OrderedDict()
        """What programs had mapped when they were expected to launch."""
        self._mapped_at: dict[ProgramId, float] = {}
        """When it was seen last what is mapped, for pointers that were in no file."""
        self._for_launcher: OrderedDict[ProgramId, list[Launch]] = OrderedDict()
        """Launches by libraries that are still to be read."""
        self._for_others: OrderedDict[ProgramId, list[Launch]] = OrderedDict()
        """Launches that another library than theirs may know."""
        self._for_driver: dict[ProgramId, list[Launch]] = {}
        """Launches that only records may tell, the driver's at first."""
        self._for_driver_since = 0.0
        """When the first of them came."""
        self._for_records: list[Launch] = []
        """Launches that only the program's own records may tell."""
        self._search_at = 0.0
        self._launched_at = 0.0
        """When the last launch came."""
        self._is_reading = False
        """Whether it was said that kernels wait for names."""
        self._ended: deque[ProgramId] = deque()
        """Programs whose memory is to be let go of, and maybe their files."""
        self._is_last = False
        """Whether the agent ends, so that nothing is put off."""
        self._wait_until = math.inf
        """When nobody waits for names any longer."""
        self._judged: set[ProgramId] = set()
        """Programs whose memory is to be compared to what is known of their driver."""
        self._lock = threading.Lock()
        self._failed_reads = 0
        self.dropped = 0
        """Launches that were not looked at, because too many waited."""
        self.worker = Worker("names", self._step)
        self.worker.start()

    def submit(self, launch: Launch | HostPointer) -> None:
        """Queue a launch of a kernel that may be unknown."""
        if self._kernels.name(launch.program, launch.handle) is not None:
            if isinstance(launch, Launch):
                self._note_known(launch)
            return
        key = (launch.program, launch.handle)
        with self._lock:
            self._waiting.setdefault(key, []).append(time.monotonic())
        if not self._queue.put(launch.program, launch):
            self.dropped += 1
            self._done(key)
        self.worker.wake()

    def expect(self, program: ProgramId) -> None:
        """Look at what a program has mapped: it may launch by host pointers, and have ended before these are looked up."""
        if self._queue.put(program, _Expected(program)):
            self.worker.wake()

    def look_up_driver(self, driver: FileId, file: File) -> None:
        """Find out how a driver's records lead to names, if earlier programs have shown that."""
        if not self._driver.report_driver(driver):
            self._drivers.append((driver, file))
            self.worker.wake()

    def unloaded(self, program: ProgramId) -> None:
        """Note that something was unloaded whose kernels nobody knows."""
        self._driver.doubt(program)

    def _note_known(self, launch: Launch) -> None:
        # What records said confirms no record.
        is_said = bool(self._kernels.said(launch.program, (launch.handle,)))
        if not is_said or not self._driver.launched_known(launch.program, launch.handle):
            return
        # Reading a program's memory takes long, and where many programs come and go a few of them tell enough.
        with self._lock:
            if len(self._judged) >= _MAX_JUDGED or launch.program in self._judged:
                return
            self._judged.add(launch.program)
        if self._queue.put(launch.program, _Judgement(launch.program, launch.ip)):
            self.worker.wake()
        else:
            self._judged.discard(launch.program)

    def settle(self, timeout_s: float, programs: Collection[ProgramId] | None = None) -> None:
        """Wait until everything of programs, or of all, is looked at, or the time is up."""
        deadline = time.monotonic() + timeout_s
        while self._queue.holds(programs) and time.monotonic() < min(deadline, self._wait_until):
            time.sleep(0.01)

    def hurry(self, timeout_s: float) -> None:
        """Let nobody wait for longer than that from now on, up to `settle_last`: the agent has been told to stop."""
        self._wait_until = time.monotonic() + timeout_s

    def settle_last(self, timeout_s: float) -> None:
        """Wait like this at the agent's end, when nothing is put off any more; no name is looked for after that."""
        self._is_last = True
        self._wait_until = math.inf
        self.worker.wake()
        self.settle(timeout_s)
        self.worker.stop(0)

    def pending(self, program: ProgramId, handle: int) -> bool:
        """Say whether a kernel's name may yet turn up."""
        with self._lock:
            since = self._waiting.get((program, handle))
            return since is not None and time.monotonic() - since[0] < _DEADLINE_S

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

    @property
    def unread_files(self) -> int:
        """How many files were not read whose kernels were wanted."""
        return self._libraries.unread

    @property
    def failed_reads(self) -> int:
        """How often something was wanted of a program's memory that could not be read, or kept its reader waiting."""
        return self._failed_reads + sum(memory.failures for memory in list(self._memories.values()))

    def caller(self, program: ProgramId, handle: int) -> str | None:
        """Return the file that launches an unknown kernel."""
        known = self._programs.get(program)
        return None if known is None else known.callers.get(handle)

    def forget(self, program: ProgramId) -> None:
        """Drop a program that has ended."""
        self._programs.pop(program, None)
        self._driver.forget(program)
        self._ended.append(program)
        self.worker.wake()

    def close(self) -> None:
        """Stop; what still waits stays unknown."""
        if self.worker.stop(_CLOSES_S):
            for memory in self._memories.values():
                memory.close()

    def _step(self) -> float:
        """Do what is most urgent; return when there is more to do.

        Launches are looked at before libraries are read for them, one at a time and for each program in turn; the
        libraries that launch before those that may know more; and records, which are judged by what is known
        otherwise, are searched in a quiet moment.
        """
        while self._drivers:
            self._driver.read_driver(*self._drivers.popleft())
        if self._ended:
            self._drop_ended()
        if not self._batch:
            self._take()
        if self._batch:
            while self._batch and not self.worker.is_stopping:
                self._work_on(self._batch.popleft())
        elif self._pointers:
            self._name_pointers()
        elif self._for_launcher:
            self._read_launcher()
        elif self._for_others:
            self._read_other()
        elif self._for_records:
            self._search_records()
        elif self._for_driver:
            quiet_at = min(self._launched_at + _QUIET_S, self._for_driver_since + _NOISY_S)
            due_s = max(quiet_at, self._search_at) - time.monotonic()
            if due_s > 0 and not self._is_last:
                return 0.0 if self._prepare_drivers() else due_s
            self._ask_drivers()
        else:
            self._say_read()
            return self._close_idle()
        return 0.0

    def _drop_ended(self) -> None:
        """Let go of programs that have ended, and of the files that no other has mapped."""
        while self._ended:
            program = self._ended.popleft()
            self._programs.pop(program, None)
            self._mapped_at.pop(program, None)
            self._expected.pop(program, None)
            self._held.pop(program, None)
            if (memory := self._memories.pop(program, None)) is not None:
                memory.close()
                self._failed_reads += memory.failures
            for waiting in (self._pointers, self._for_launcher, self._for_others, self._for_driver):
                for item in waiting.pop(program, ()):
                    self._finish(item)
        modules = [module for known in list(self._programs.values()) for module in known.modules]
        self._libraries.keep_only(module.stubs for module in modules if module.stubs is not None)

    def _close_idle(self) -> float:
        """Let go of memory that nobody asks for; return in how many seconds there may be more of it."""
        for program, memory in list(self._held.items()):
            memory.close_idle()
            if not memory.is_open:
                del self._held[program]
        return _IDLE_S if self._held else math.inf

    def _take(self) -> None:
        """Take what is in the queue now."""
        expected: list[ProgramId] = []
        for item in self._queue.take(_MAX_BATCH):
            if isinstance(item, _Expected):
                expected.append(item.program)
            else:
                self._batch.append(item)
        if expected:
            self._look_at_mapped(expected)
        launches = [item for item in self._batch if isinstance(item, Launch)]
        if launches:
            self._launched_at = time.monotonic()
            self._note_callers(launches)

    def _note_callers(self, launches: list[Launch]) -> None:
        """Note from where unknown kernels are launched, before the first library is read: that can take seconds."""
        for program in {launch.program for launch in launches}:
            known = self._programs.get(program) or KnownProgram()
            try:
                self._refresh(program, known)
            except _FAILURES as e:
                _log.debug("modules of process %d: %s", program[0], e)
                continue
            self._programs[program] = known
            for launch in launches:
                if launch.program == program:
                    known.note_caller(launch)

    def _work_on(self, item: _Work) -> None:
        if isinstance(item, HostPointer):
            self._pointers.setdefault(item.program, []).append(item)
            return
        if isinstance(item, _Judgement):
            try:
                driver_of = partial(self._module_at, item.program, item.ip)
                self._driver.judge(item.program, driver_of, self._memory(item.program))
            except _FAILURES as e:
                _log.debug("driver of process %d: %s", item.program[0], e)
            finally:
                self._judged.discard(item.program)
                self._queue.done(item.program)
            return
        waits: list[Launch] | None = None
        try:
            if self._is_unread(item):
                waits = self._for_launcher.setdefault(item.program, [])
            elif self._look(item):
                if not self._for_driver:
                    self._for_driver_since = time.monotonic()
                waits = self._for_driver.setdefault(item.program, [])
        except _FAILURES as e:
            _log.debug("kernel %#x of process %d: %s", item.handle, item.program[0], e)
        finally:
            if waits is None:
                self._finish(item)
            else:
                waits.append(item)

    def _look_at_mapped(self, programs: list[ProgramId]) -> None:
        """Note what programs have mapped, of all together and without opening it: each may be about to end."""
        by_pid = {program[0]: program for program in programs}
        try:
            for pid, mapped in mappings_of_all(self._parsers, list(by_pid)):
                files = [file for file in mapped if file.inode]
                if len(files) <= _MAX_EXPECTED_OF_ONE and self._runs(by_pid[pid]):
                    self._expected[by_pid[pid]] = files
        except _FAILURES as e:
            _log.debug("what processes %s have mapped: %s", list(by_pid), e)
        finally:
            for program in programs:
                self._queue.done(program)
        while sum(map(len, self._expected.values())) > _MAX_EXPECTED:
            self._expected.popitem(last=False)

    def _name_pointers(self) -> None:
        """Name what one program launched by host pointers: a pointer into no file is a handle, which has its name."""
        program, pointers = self._pointers.popitem(last=False)
        try:
            by_file: dict[tuple[int, int], tuple[Module, list[int]]] = {}
            for pointer in pointers:
                if (module := self._file_at(program, pointer.handle)) is not None:
                    by_file.setdefault(module.extent, (module, []))[1].append(pointer.handle)
            for module, handles in by_file.values():
                for handle, name in kernels_at(self._parsers, module, handles).items():
                    self._kernels.learn(program, handle, name)
        except _FAILURES as e:
            _log.debug("kernels of process %d: %s", program[0], e)
        finally:
            for pointer in pointers:
                self._finish(pointer)

    def _file_at(self, program: ProgramId, address: int) -> Module | None:
        known = self._programs.setdefault(program, KnownProgram())
        found = known.file_at(address)
        now = time.monotonic()
        # Handles lie in no file however often one looks.
        if found is None and now - self._mapped_at.get(program, 0.0) > _REMAP_S:
            self._refresh(program, known)
            self._mapped_at[program] = now
            found = known.file_at(address)
        return found

    def _finish(self, launch: Launch | HostPointer) -> None:
        self._done((launch.program, launch.handle))
        self._queue.done(launch.program)

    def _done(self, key: tuple[ProgramId, int]) -> None:
        with self._lock:
            since = self._waiting[key]
            since.pop(0)
            if not since:
                del self._waiting[key]

    def _is_unread(self, launch: Launch) -> bool:
        """Say whether the library that launches is still to be read: of those that a PyTorch process maps, few launch."""
        known = self._programs.get(launch.program)
        if known is None or self._kernels.name(launch.program, launch.handle) is not None:
            return False
        return unread_launcher(launch, known.modules) is not None

    def _look(self, launch: Launch) -> bool:
        """Name a launch's kernel; say whether only records or other libraries may still do so."""
        program = launch.program
        known = self._programs.get(program)
        if self._is_named(launch) or known is None:
            return False
        # Of one that has ended its stack still tells.
        with contextlib.suppress(ProcessGoneError):
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
            self._note_known(launch)
            return False
        return True

    def _is_named(self, launch: Launch) -> bool:
        """Say whether a launch's kernel has got its name since the launch, which then shows where the driver has names."""
        if self._kernels.name(launch.program, launch.handle) is None:
            return False
        self._note_known(launch)
        return True

    def _read_launcher(self) -> None:
        """Read a library that launches, for the program whose turn it is, and have its launches looked at again."""
        program, launches = self._for_launcher.popitem(last=False)
        self._batch.extend(launches)
        known = self._programs.get(program)
        if known is not None:
            unread = (unread_launcher(launch, known.modules) for launch in launches)
            if (module := next((module for module in unread if module is not None), None)) is not None:
                self._read_library(known, module)

    def _read_other(self) -> None:
        """Read a library that does not launch, for the program whose turn it is: the handle may be in a variable of it."""
        program, launches = self._for_others.popitem(last=False)
        known = self._programs.get(program)
        module = None if known is None else known.next_unread(launches)
        if known is None or module is None:
            self._for_records += launches
            return
        self._for_others[program] = launches
        self._read_library(known, module)
        try:
            self._read_handles(program, known)
        except _FAILURES as e:
            _log.debug("handles of process %d: %s", program[0], e)
        for launch in [launch for launch in launches if self._is_named(launch)]:
            launches.remove(launch)
            self._finish(launch)
        if not launches:
            del self._for_others[program]

    def _read_library(self, known: KnownProgram, module: Module) -> None:
        """Read the kernels of a file; it has none where that fails, lest it be tried again and again."""
        stubs = StubMap()
        unread, began = self._libraries.unread, time.monotonic()
        try:
            if known.wasted_s < _MAX_WASTED_S:
                stubs = self._libraries.read(module)
        finally:
            if self._libraries.unread > unread:
                known.wasted_s += time.monotonic() - began
            known.put(module, stubs)

    def _refresh(self, program: ProgramId, known: KnownProgram) -> None:
        try:
            mapped = self._memory(program).mapped()
        except ProcessGoneError:
            mapped = self._expected.get(program) or [file for file in self._mapped_before(program) if file.inode]
            if not mapped:
                raise
        else:
            self._expected.pop(program, None)
        known.map(mapped, self._libraries.modules)

    def _memory(self, program: ProgramId) -> ProgramMemory:
        """Return a program's memory, and let go of that which was asked longest ago where too many are held."""
        memory = self._memories.get(program)
        if (memory is None or not memory.is_open) and not self._runs(program):
            raise ProcessGoneError(f"process {program[0]} is gone, or runs another program by now")
        if memory is None:
            memory = self._memories[program] = ProgramMemory(self._parsers, program[0])
        self._held[program] = memory
        self._held.move_to_end(program)
        if len(self._held) > _MAX_OPEN:
            self._held.popitem(last=False)[1].close()
        return memory

    def _module_at(self, program: ProgramId, address: int) -> Module | None:
        """Return what a program has mapped at an address."""
        known = self._programs.setdefault(program, KnownProgram())
        if (found := module_at(known.modules, address)) is None:
            self._refresh(program, known)
            found = module_at(known.modules, address)
        return found

    def _read_handles(self, program: ProgramId, known: KnownProgram) -> None:
        """Learn the handles that the program's variables hold now."""
        if known.are_handles_due():
            for handle, name in known.new_handles(self._memory(program).words):
                self._kernels.learn(program, handle, name)
                known.tell(handle, name)

    def _prepare_drivers(self) -> bool:
        """Read a driver's file while its records are to be left alone; False where all have been read."""
        for program, launches in self._for_driver.items():
            known = self._programs.get(program)
            driver = None if known is None else module_at(known.modules, launches[-1].ip)
            if driver is not None and self._driver.prepare(driver):
                return True
        return False

    def _ask_drivers(self) -> None:
        """Name launches' kernels by the drivers' records."""
        begun = time.monotonic()
        for program in list(self._for_driver):
            self._ask_driver(program, self._for_driver.pop(program))
        self._search_at = time.monotonic() + (time.monotonic() - begun) / _SEARCH_SHARE

    def _ask_driver(self, program: ProgramId, launches: list[Launch]) -> None:
        known = self._programs.get(program)
        named: set[int] = set()
        try:
            driver = self._module_at(program, launches[-1].ip)
            if driver is not None:
                with self._lock:
                    launched = {launch.handle: self._waiting[program, launch.handle][-1] for launch in launches}
                named = self._driver.name(program, driver, self._memory(program), launched)
        except _FAILURES as e:
            _log.debug("driver of process %d: %s", program[0], e)
        finally:
            unnamed = [launch for launch in launches if launch.handle not in named]
            if unnamed and known is not None and known.next_unread(unnamed) is not None:
                self._for_others.setdefault(program, []).extend(unnamed)
            else:
                self._for_records += unnamed
            for launch in launches:
                if launch.handle in named:
                    self._finish(launch)

    def _search_records(self) -> None:
        """Name launches' kernels by the records of their programs, and be done with them."""
        begun = time.monotonic()
        launches, self._for_records = self._for_records, []
        try:
            for program, its in _by_program(launches).items():
                known = self._programs.get(program)
                if known is not None and known.told:
                    self._search_records_of(program, known, its)
        finally:
            spent = time.monotonic() - begun
            self._search_at = max(self._search_at, time.monotonic()) + spent / _SEARCH_SHARE
            for launch in launches:
                self._finish(launch)

    def _search_records_of(self, program: ProgramId, known: KnownProgram, launches: list[Launch]) -> None:
        originals = {launch.handle: self._kernels.original(program, launch.handle) for launch in launches}
        try:
            names = told_by_program(self._memory(program), known, launches, originals)
        except _FAILURES as e:
            _log.debug("records of process %d: %s", program[0], e)
            return
        for handle, name in names.items():
            # The driver may have been asked for the kernel meanwhile, and that is the better source.
            if self._kernels.name(program, handle) is None:
                self._kernels.learn(program, handle, name, derived=True)

    def _say_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            _log.info("names of kernels: %d wait, libraries are read for the first time", self.unnamed()[0])

    def _say_read(self) -> None:
        if self._is_reading:
            self._is_reading = False
            _log.info("names of kernels: none waits any more, %d are not known", self.unnamed()[1])


def _by_program(launches: Iterable[Launch]) -> dict[ProgramId, list[Launch]]:
    found: dict[ProgramId, list[Launch]] = {}
    for launch in launches:
        found.setdefault(launch.program, []).append(launch)
    return found
