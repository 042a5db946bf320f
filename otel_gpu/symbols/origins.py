"""What is a kernel called that was loaded before we looked? Told by where it is launched from.

Three witnesses, all of them constants of the program: the variables in which programs keep the handles of
their kernels (CUDA 12.4 and later), the host function around the launching call, and the host function's
stub, whose address the runtime still holds on its stack. Where they do not agree on one name, there is none.
"""

from __future__ import annotations

import logging
import os
import queue
import struct
import threading
import time
from dataclasses import dataclass, field

from ..discovery import procfs
from ..elf import ElfFile
from ..errors import ElfError, OtelGpuError
from .cache import SymbolCache
from .kernels import KernelBook, Program
from .process_memory import MemoryFault, ProcessMemory
from .stubs import StubMap, read_stub_map

_log = logging.getLogger(__name__)
_MAX_QUEUE = 10_000
_MAX_FRAMES = 24
_CACHE_KIND = "stubs"
_FATBINS = (".nv_fatbin", "__nv_relfatbin")
_REREAD_S = 1.0
"""How often the handle variables of a program are read again while unknown handles turn up."""
_PATIENCE_S = 60.0
"""How long a name may be looked for before nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a kernel that is not known: the calling thread's registers and the top of its stack."""

    program: Program
    handle: int
    ip: int
    sp: int
    fp: int
    saved: tuple[int, ...]
    stack: bytes


@dataclass(frozen=True, slots=True)
class _Module:
    start: int
    end: int
    bias: int
    name: str
    stubs: StubMap


@dataclass(slots=True)
class _Known:
    """What is known of one program's modules."""

    mapped: int = 0
    modules: list[_Module] = field(default_factory=list)
    handles_read: float = 0.0


class Origins:
    """Names kernels by their launches, in a thread of its own."""

    def __init__(self, kernels: KernelBook, cache: SymbolCache | None = None) -> None:
        self._kernels = kernels
        self._cache = cache or SymbolCache()
        self._queue: queue.Queue[Launch | None] = queue.Queue(_MAX_QUEUE)
        self._programs: dict[Program, _Known] = {}
        self._stubs: dict[tuple[int, int, int], StubMap | None] = {}
        self._callers: dict[tuple[Program, int], str] = {}
        self._waiting: dict[tuple[Program, int], list[float]] = {}
        self._lock = threading.Lock()
        self.dropped = 0
        """Launches that were not looked at, because too many waited."""
        self._thread = threading.Thread(target=self._run, name="otel-gpu-names", daemon=True)
        self._thread.start()

    def submit(self, launch: Launch) -> None:
        """Queue a launch of a kernel that may be unknown."""
        if self._kernels.name(launch.program, launch.handle) is not None:
            return
        key = (launch.program, launch.handle)
        with self._lock:
            self._waiting.setdefault(key, []).append(time.monotonic())
        try:
            self._queue.put_nowait(launch)
        except queue.Full:
            self.dropped += 1
            self._done(key)

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

    def caller(self, program: Program, handle: int) -> str | None:
        """Return the file that launches an unknown kernel."""
        return self._callers.get((program, handle))

    def forget(self, program: Program) -> None:
        """Drop a program that has ended."""
        self._programs.pop(program, None)
        for key in [k for k in list(self._callers) if k[0] == program]:
            self._callers.pop(key, None)

    def close(self) -> None:
        """Stop; what still waits stays unknown."""
        while True:
            try:
                self._queue.put_nowait(None)
                break
            except queue.Full:
                self._queue.get_nowait()
                self._queue.task_done()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while (launch := self._queue.get()) is not None:
            try:
                self._look(launch)
            except (OtelGpuError, OSError, struct.error) as e:
                _log.debug("kernel %#x of process %d: %s", launch.handle, launch.program[0], e)
            finally:
                self._done((launch.program, launch.handle))
                self._queue.task_done()

    def _done(self, key: tuple[Program, int]) -> None:
        with self._lock:
            since = self._waiting[key]
            since.pop(0)
            if not since:
                del self._waiting[key]

    def _look(self, launch: Launch) -> None:
        program = launch.program
        if self._kernels.name(program, launch.handle) is not None:
            return
        known = self._programs.setdefault(program, _Known())
        self._refresh(program, known)
        self._read_handles(program, known)
        if self._kernels.name(program, launch.handle) is not None:
            return
        name = told_by_stack(launch, known.modules)
        if name is not None:
            self._kernels.learn(program, launch.handle, name)
            return
        (first,) = struct.unpack_from("<Q", launch.stack)
        if (module := _module_of(known.modules, first)) is not None:
            self._callers[program, launch.handle] = module.name

    def _refresh(self, program: Program, known: _Known) -> None:
        """Read the program's modules, if there are other ones than the last time."""
        mappings = procfs.executable_mappings(program[0])
        if len(mappings) == known.mapped:
            return
        modules = []
        for mapping in mappings:
            try:
                with ElfFile(_opener(program[0], mapping)) as elf:
                    bias = mapping.start - elf.to_vaddr(mapping.offset)
                    stubs = self._stub_map(elf)
            except (ElfError, OSError):
                continue
            modules.append(_Module(mapping.start, mapping.end, bias, os.path.basename(mapping.path), stubs))
        known.modules = modules
        known.mapped = len(mappings)
        known.handles_read = 0.0

    def _stub_map(self, elf: ElfFile) -> StubMap:
        key = (elf.stat.st_ino, elf.stat.st_size, elf.stat.st_mtime_ns)
        if key in self._stubs:
            return self._stubs[key] or StubMap()
        stubs = None
        if any(elf.section(s) is not None for s in _FATBINS):
            stubs = self._cache.read(elf, _CACHE_KIND, StubMap)
            if stubs is None:
                stubs = read_stub_map(elf)
                self._cache.write(elf, _CACHE_KIND, stubs)
        self._stubs[key] = stubs
        return stubs or StubMap()

    def _read_handles(self, program: Program, known: _Known) -> None:
        """Learn the handles that the program's variables hold now."""
        if time.monotonic() - known.handles_read < _REREAD_S:
            return
        known.handles_read = time.monotonic()
        seen: set[int] = set()
        with ProcessMemory(program[0]) as memory:
            for module in known.modules:
                if module.bias in seen:
                    continue
                seen.add(module.bias)
                for variable, name in module.stubs.handles():
                    try:
                        (handle,) = struct.unpack("<Q", memory.read(module.bias + variable, 8))
                    except MemoryFault:
                        continue
                    # Until a device is there, the runtime keeps the stub itself.
                    if handle and module.stubs.name_of(handle - module.bias) is None:
                        self._kernels.learn(program, handle, name)


def told_by_stack(launch: Launch, modules: list[_Module]) -> str | None:
    """Return the one name that the launching thread's stack speaks for, None where it is not one.

    The driver's and the runtime's frames keep frame pointers. Outwards from the launch, the first function that
    mentions stubs is the caller; if it mentions several, the stub is among those still on the stack below it.
    """
    words = struct.unpack(f"<{len(launch.stack) // 8}Q", launch.stack)
    frames = [(launch.sp, words[0]), *_frames(launch, words)]
    for end, address in frames:
        module = _module_of(modules, address)
        if module is None:
            continue
        names = module.stubs.names_used_at(address - module.bias)
        if len(names) == 1:
            return next(iter(names))
        if names:
            below = words[: max((end - launch.sp) // 8, 0)]
            return _only(names & _stubs_among((*launch.saved, *below), modules))
    return None


def _frames(launch: Launch, words: tuple[int, ...]) -> list[tuple[int, int]]:
    """Follow frame pointers through the copied stack: (where the frame ends, return address)."""
    found: list[tuple[int, int]] = []
    fp = launch.fp
    for _ in range(_MAX_FRAMES):
        at = (fp - launch.sp) // 8
        if fp % 8 or not 0 <= at < len(words) - 1:
            break
        found.append((fp + 16, words[at + 1]))
        if words[at] <= fp:
            break
        fp = words[at]
    return found


def _stubs_among(words: tuple[int, ...], modules: list[_Module]) -> frozenset[str]:
    found = set()
    for word in words:
        module = _module_of(modules, word)
        if module is not None and (name := module.stubs.name_of(word - module.bias)) is not None:
            found.add(name)
    return frozenset(found)


def _only(names: frozenset[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None


def _module_of(modules: list[_Module], address: int) -> _Module | None:
    for module in modules:
        if module.start <= address < module.end:
            return module
    return None


def _opener(pid: int, mapping: procfs.FileMapping) -> str:
    opener = mapping.opener(pid)
    return opener if os.path.exists(opener) else f"/proc/{pid}/root{mapping.path}"
