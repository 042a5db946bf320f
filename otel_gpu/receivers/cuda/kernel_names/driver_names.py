"""Which kernels that were loaded before we looked does the driver itself name? Asked of its records, while they hold.

A record is read after its handle was launched, and may be gone by then. So each is read twice, with time between for the
kernel's report of an unload to arrive; and when something was unloaded whose kernels nobody knows, no handle is named
that was not launched after that. A handle that is given out again counts as another kernel (ebpf/cuda/generations.bpf.h).
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec

from ....discovery.program_id import ProgramId
from ....errors import OtelGpuError
from ....sandbox.files import File, FileId
from ....sandbox.parsers import Parsers
from ....signals.structs import Record
from .cache import SymbolCache
from .compiler_caches import kernels_in_caches
from .driver_paths import DriverPaths, OnPaths
from .driver_records import Path, is_scarce
from .kernels import KernelTable
from .launches import Module
from .memory_work import DriverNamesAnswer
from .program_memory import ProgramMemory

_log = logging.getLogger(__name__)
_MAX_LAUNCHED = 256
_JUDGED_AT = frozenset({3, 8, 32, 128})
"""How many different known kernels a program must have launched to be asked what they show."""
_SETTLES_S = 0.1
"""How long a name must have stood: longer than the kernel's reports take."""
_MAX_NAMELESS = 4096
_FAILURES = (OtelGpuError, OSError, struct.error)


class _State(Record):
    """What is known of one program."""

    launched: OrderedDict[int, None] = msgspec.field(default_factory=OrderedDict)
    """Handles of known kernels that were launched, the last ones."""
    doubted_at: float = 0.0
    """When something was unloaded whose kernels nobody knows."""
    paths: frozenset[Path] = frozenset()
    """Those that hold for this program alone."""
    nameless: dict[int, float] = msgspec.field(default_factory=dict)
    """Handles without a name, and when they were launched: together they may tell what each alone does not."""


class DriverNames:
    """Names handles by the driver's records."""

    def __init__(
        self,
        kernels: KernelTable,
        parsers: Parsers,
        cache: SymbolCache,
        on_paths: OnPaths = lambda _driver, _paths: None,
    ) -> None:
        self._kernels = kernels
        self._parsers = parsers
        self._book = DriverPaths(parsers, cache, on_paths)
        self._states: dict[ProgramId, _State] = {}
        self._lock = threading.Lock()

    def report_driver(self, driver: FileId) -> bool:
        """Report what earlier programs have shown of a driver, without a look at its file; False where it must be read."""
        return self._book.report(driver)

    def read_driver(self, driver: FileId, file: File) -> None:
        """Report the same of one that must be read."""
        try:
            self._book.read(driver, file)
        except _FAILURES as e:
            _log.debug("driver %s: %s", file, e)

    def launched_known(self, program: ProgramId, handle: int) -> bool:
        """Note a launch of a kernel whose name is known; say whether the program should be judged now."""
        with self._lock:
            state = self._states.setdefault(program, _State())
            is_new = handle not in state.launched
            state.launched[handle] = None
            state.launched.move_to_end(handle)
            if len(state.launched) > _MAX_LAUNCHED:
                state.launched.popitem(last=False)
            return is_new and len(state.launched) in _JUDGED_AT

    def doubt(self, program: ProgramId) -> None:
        """Note that something was unloaded whose kernels nobody knows: any handle may be gone that was launched before."""
        with self._lock:
            state = self._states.setdefault(program, _State())
            state.doubted_at = time.monotonic()
            state.nameless.clear()

    def judge(self, program: ProgramId, driver_of: Callable[[], Module | None], memory: ProgramMemory) -> None:
        """Let a program whose kernels are known show how the driver's records lead to names.

        It may be about to end, and to read a driver takes longer than to read records: those of the first program come first.
        """
        try:
            told = self._told(program)
            shown = None if self._book.has_read_any else memory.driver((), told, frozenset()).paths
            if (driver := driver_of()) is None:
                return
            believed = self._book.paths(driver)
            if believed or shown is None:
                shown = memory.driver((), told, believed).paths
            self._book.put(driver, shown)
        except _FAILURES as e:
            _log.debug("records of process %d: %s", program[0], e)

    def prepare(self, driver: Module) -> bool:
        """Read a driver's file ahead of its records; False where it has been."""
        return self._book.hash_once(driver)

    def name(
        self, program: ProgramId, driver: Module, memory: ProgramMemory, launched: Mapping[int, float]
    ) -> set[int]:
        """Learn the names of handles that were launched at those times; return the ones that have one now."""
        with self._lock:
            state = self._states.setdefault(program, _State())
            handles = {h: when for h, when in {**state.nameless, **launched}.items() if when > state.doubted_at}
        try:
            said = self._ask(program, driver, memory, state, handles)
            first = said.names
            if first:
                time.sleep(_SETTLES_S)
                second = memory.led(handles, said.paths or said.own)
                first = {handle: name for handle, name in first.items() if second.get(handle) == name}
        except _FAILURES as e:
            _log.debug("records of process %d: %s", program[0], e)
            return set()
        with self._lock:
            names = {h: name for h, name in first.items() if handles[h] > state.doubted_at}
            # Those that few handles were enough for are asked again when there are more.
            open_ = handles if is_scarce(handles) else {h: w for h, w in handles.items() if h not in names}
            state.nameless = {h: w for h, w in open_.items() if w > state.doubted_at}
            while len(state.nameless) > _MAX_NAMELESS:
                del state.nameless[next(iter(state.nameless))]
        for handle, name in names.items():
            # The driver may have been asked for the kernel meanwhile, and that is the better source.
            if self._kernels.name(program, handle) is None:
                self._kernels.learn(program, handle, name, derived=True)
        return set(names)

    def forget(self, program: ProgramId) -> None:
        """Drop a program that has ended."""
        with self._lock:
            self._states.pop(program, None)

    def _ask(
        self, program: ProgramId, driver: Module, memory: ProgramMemory, state: _State, handles: Mapping[int, float]
    ) -> DriverNamesAnswer:
        told = self._told(program)
        said = memory.driver(handles, told, self._book.paths(driver), state.paths)
        self._book.put(driver, said.paths)
        if said.needs_files:
            in_files = kernels_in_caches(self._parsers, program[0])
            said = memory.driver(handles, told, said.paths, state.paths, in_files)
            if not is_scarce({*handles, *told}):
                state.paths = said.own
        return said

    def _told(self, program: ProgramId) -> dict[int, str]:
        with self._lock:
            launched = list(self._states.setdefault(program, _State()).launched)
        return self._kernels.said(program, launched)
