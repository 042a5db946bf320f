"""Where do the programs go that follow the requests of one process? Worked out by a child, from its libc and its CPython.

They are placed in that process only: others that map the same files pay nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ...bpf.abi.unwinding import PY_ABSENT
from ...errors import OtelGpuError
from ...probes.prologue import Cost
from ...probes.sites import SiteRules, site_for_symbol
from ...sandbox.address_spans import Span
from ...sandbox.confinement import Limits
from ...sandbox.elf import ElfFile, Symbol
from ...sandbox.memory import MemoryFault, MemoryFiles, ProcessMemory
from ...sandbox.work import OpenFile, work
from ...signals.structs import Frozen
from ...stacks.cpython.context_sites import (
    COPY_CURRENT,
    ENTER,
    SYMBOLS,
    TYPE,
    context_offset,
    dealloc_of,
    function_at,
    method_of,
    methods,
)
from ...stacks.cpython.layout import DEBUG_OFFSETS_SIZE, PythonLayout, TssKind, UnsupportedPythonError, layout_for
from ...stacks.cpython.process import NotStartedError, thread_state_place
from ...stacks.cpython.symbols import GET_VERSION, GILSTATE, RUNTIME, VERSION
from ...stacks.cpython.thread_state import find_slot
from ...stacks.cpython.version import version_of
from .executors import SYMBOLS as SYMBOLS_OF_CALLBACKS
from .executors import callback_sites

LOOKING = Limits(answer_s=10.0, cpu_s=20, memory_bytes=1 << 30, answer_bytes=4 << 20)

LOOPING = "loop_waits"
"""The program that sees which threads wait for several descriptors."""
_LIBC = {
    "epoll_wait": (LOOPING, False),
    "epoll_pwait": (LOOPING, False),
    "epoll_pwait2": (LOOPING, False),
    "accept": ("connection_accepted", True),
    "accept4": ("connection_accepted", True),
    "sem_wait": ("thread_waits", False),
    "sem_timedwait": ("thread_waits", False),
    "sem_clockwait": ("thread_waits", False),
    "pthread_cond_wait": ("thread_waits", False),
    "pthread_cond_timedwait": ("thread_waits", False),
    "pthread_cond_clockwait": ("thread_waits", False),
}
"""Functions of libc: the program of ebpf/inference/hand_over.bpf.c, and whether it runs at the return."""
_QUEUE = {
    "put": (("item_put", False),),
    "put_nowait": (("item_put", False),),
    "get": (("item_wanted", False), ("item_taken", True)),
    "get_nowait": (("item_wanted", False), ("item_taken", True)),
}
"""Methods of `_queue.SimpleQueue`."""
_QUEUE_TABLE = 8 * 32
"""Bytes within which they stand in its table of methods."""
_TELLING = "put_nowait"
_TLS = {
    "SSL_read": (("tls_called", False), ("tls_read", True)),
    "SSL_read_ex": (("tls_called_ex", False), ("tls_read", True)),
    "SSL_write": (("tls_called", False), ("tls_written", True)),
    "SSL_write_ex": (("tls_called_ex", False), ("tls_written", True)),
    "SSL_do_handshake": (("tls_called", False), ("tls_shook_hands", True)),
    "SSL_free": (("tls_ends", False),),
    "SSL_clear": (("tls_ends", False),),
}
"""Functions of OpenSSL, and of what is made after it: the programs of ebpf/inference/tls.bpf.c."""
_PIPES = {
    "_Py_read": (("pipe_read", False), ("pipe_was_read", True)),
    "_Py_write": (("pipe_written", False), ("pipe_was_written", True)),
}
"""Functions of CPython by which it reads descriptors and writes to them: the programs of ebpf/inference/pipes.bpf.c."""
_TLS_LEAST = frozenset({"SSL_read", "SSL_write", "SSL_free"})
LEARNING = "context_entered"
"""The program that learns in which context uvloop runs callbacks: it is taken away then, as its site is a dear one."""
_LOOKED_AT = (
    b"libc.so",
    b"libc-2",
    b"libpthread",
    b"ld-musl",
    b"libpython",
    b"python",
    b"_queue.",
    b"libssl.so",
    b"libssl-",
    b"_ssl.",
)
"""How files are called in which programs may go: libssl is renamed where a wheel brings it, and may be part of a module."""
_OF_GO = frozenset({".gopclntab", ".go.buildinfo", ".data.rel.ro.gopclntab"})
"""Sections of files that Go made; stripped ones have them too."""
_THREADS_HAVE_CONTEXTS = (3, 14)
_SERVERS_HAVE_CONTEXTS = (3, 15)
"""From here on asyncio makes a connection's context by `Context.copy()`, of its server's."""


class Image(Frozen):
    """A file that a process has mapped executable."""

    start: int
    end: int
    offset: int
    path: bytes


class FollowRequest(Frozen):
    """What is looked at: images in the order of the files behind the three that show the memory."""

    rules: SiteRules
    images: tuple[Image, ...]
    executable: int
    """Which of them is the program's own file; -1 where it is none."""
    callbacks: bool = False
    """Whether executors run callbacks in it."""
    python_callbacks: bool = False
    """Whether they are rclpy's."""


class FollowSite(Frozen):
    """Where a program goes."""

    image: int
    program: str
    offset: int
    at_return: bool
    cookie: int = 0


class PythonPlaces(Frozen):
    """Where a CPython keeps what its threads are at."""

    thread_state: int
    thread_offset: int
    thread_module: int
    runtime: int
    runtime_end: int
    context_offset: int
    code: Span
    """Its functions."""
    threads_have_contexts: bool
    frames: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Where frames are, by the names of `FOLLOWED`, where they are looked at."""


class Followable(Frozen):
    """What is known of a process, or why it cannot be followed."""

    sites: tuple[FollowSite, ...] = ()
    python: PythonPlaces | None = None
    hides_loops: bool = False
    """Its threads may wait for connections by system calls that are not libc's, as Go's runtime does."""
    has_started: bool = True
    """False: its CPython is there and has not started yet."""
    reason: str = ""


def is_uvloop(path: bytes) -> bool:
    """Tell whether a mapped file is uvloop."""
    return b"/uvloop/" in path


def is_grpc(path: bytes) -> bool:
    """Tell whether a mapped file is gRPC's core for Python."""
    return os.path.basename(path).startswith(b"cygrpc.")


def is_looked_at(path: bytes) -> bool:
    """Tell whether a mapped file may be one in which programs go."""
    name = os.path.basename(path)
    return name.startswith(_LOOKED_AT)


@work(FollowRequest, Followable)
def look_at_process(files: Sequence[OpenFile], request: FollowRequest) -> Iterator[Followable]:
    """Yield where the programs go in one process: its memory's files, then its images."""
    shown, images = MemoryFiles.opened(files[:3]), files[3:]
    sites: list[FollowSite] = []
    python: PythonPlaces | None = None
    reason = ""
    try:
        for number, (file, image) in enumerate(zip(images, request.images, strict=True)):
            if file.descriptor < 0:
                continue
            looked_at = _Image(number, image, ElfFile.of(file, file.path), shown, request.rules)
            if RUNTIME in looked_at.symbols and COPY_CURRENT in looked_at.symbols and python is None:
                try:
                    python = looked_at.python(has_frames=request.python_callbacks)
                    sites += looked_at.context_sites()
                    sites += looked_at.pipe_sites()
                except UnsupportedPythonError as e:
                    reason = str(e)
            if request.callbacks:
                sites += looked_at.callback_sites(in_python=request.python_callbacks)
            sites += looked_at.libc_sites()
            sites += looked_at.tls_sites()
            if os.path.basename(image.path).startswith(b"_queue.") or RUNTIME in looked_at.symbols:
                sites += looked_at.queue_sites()
    except (NotStartedError, MemoryFault):
        yield Followable(has_started=False)
        return
    sees_loops = any(site.program == LOOPING for site in sites)
    hides_loops = not sees_loops or request.executable < 0 or _is_go(images[request.executable])
    yield Followable(tuple(sites), python, hides_loops, reason="" if python else reason)


def _is_go(file: OpenFile) -> bool:
    if file.descriptor < 0:
        return True  # who knows
    return any(section.name in _OF_GO for section in ElfFile.of(file, file.path).sections)


def _frames_of(layout: PythonLayout) -> Mapping[str, int]:
    """Return where a CPython has its frames. Up to 3.10 they name their generator: the pointer before `f_lasti`."""
    is_object = layout.frame_owner == PY_ABSENT
    return {
        "state_frame": 0 if layout.tstate_frame == PY_ABSENT else layout.tstate_frame,
        "state_cframe": 0 if layout.tstate_cframe == PY_ABSENT else layout.tstate_cframe,
        "cframe_frame": 0 if layout.cframe_frame == PY_ABSENT else layout.cframe_frame,
        "frame_previous": layout.frame_previous,
        "frame_code": layout.frame_code,
        "frame_owner": 0 if is_object else layout.frame_owner,
        "frame_generator": layout.frame_instr - 8 if is_object else 0,
    }


class _Image:
    """One mapped file."""

    def __init__(self, number: int, image: Image, elf: ElfFile, shown: MemoryFiles, rules: SiteRules) -> None:
        self._number = number
        self._image = image
        self._elf = elf
        self._shown = shown
        self._memory: ProcessMemory = shown.memory
        self._rules = rules
        wanted = {*_LIBC, *_TLS, *_PIPES, *SYMBOLS, *SYMBOLS_OF_CALLBACKS, RUNTIME, GILSTATE, VERSION, GET_VERSION}
        self.symbols: dict[str, Symbol] = {}
        self._all: list[Symbol] = []
        for symbol in elf.symbols():
            if symbol.name in wanted:
                self.symbols[symbol.name] = symbol
                self._all.append(symbol)
        self._bias = image.start - elf.code_vaddr(image.offset)

    def python(self, *, has_frames: bool) -> PythonPlaces:
        """Return where its threads have their states, and their frames; UnsupportedPythonError, NotStartedError."""
        runtime = self.symbols[RUNTIME]
        version, _ = version_of(self._elf, self.symbols)
        offsets = (
            self._elf.read_vaddr(runtime.value, min(DEBUG_OFFSETS_SIZE, runtime.size)) if version >= (3, 13) else None
        )
        layout = layout_for(version, offsets)
        if GILSTATE in self.symbols:
            slot = find_slot(self._elf, self.symbols[GILSTATE], runtime)
            if slot.kind is not TssKind.NONE:
                layout = layout.with_tss(slot.kind, slot.offset, slot.block)
        state, offset, module = thread_state_place(layout, runtime.value + self._bias, self._bias, self._memory)
        return PythonPlaces(
            state,
            offset,
            module,
            runtime.value + self._bias,
            runtime.value + runtime.size + self._bias,
            context_offset(self._elf, self.symbols[COPY_CURRENT]),
            Span(self._image.start, self._image.end),
            version >= _THREADS_HAVE_CONTEXTS,
            _frames_of(layout) if has_frames else {},
        )

    def context_sites(self) -> Iterator[FollowSite]:
        """Yield the sites where contexts are made, entered and freed; UnsupportedPythonError where one is missing."""
        address = dealloc_of(self._memory, self.symbols[TYPE].value + self._bias) if TYPE in self.symbols else 0
        try:
            dealloc = function_at(self._elf, address - self._bias, "context_tp_dealloc")
        except OtelGpuError as e:
            raise UnsupportedPythonError(f"{self._elf.path}: it is not known where contexts are freed") from e
        yield self._site("context_copied", self.symbols[COPY_CURRENT], at_return=True)
        yield self._site("context_ends", dealloc)
        version, _ = version_of(self._elf, self.symbols)
        copy = method_of(self._memory, self.symbols[TYPE].value + self._bias, "copy")
        if version >= _SERVERS_HAVE_CONTEXTS and copy:
            method = function_at(self._elf, copy - self._bias, "context_copy")
            yield self._site("context_copied_by_method", method, at_return=True)
        if ENTER in self.symbols:
            yield self._site(LEARNING, self.symbols[ENTER])

    def libc_sites(self) -> Iterator[FollowSite]:
        """Yield the sites where threads wait, and accept connections."""
        taken = set()
        for symbol in self._all:
            if symbol.name in _LIBC and symbol.value not in taken and RUNTIME not in self.symbols:
                taken.add(symbol.value)
                program, at_return = _LIBC[symbol.name]
                yield self._site(program, symbol, at_return=at_return)

    def pipe_sites(self) -> Iterator[FollowSite]:
        """Yield the sites where CPython reads and writes descriptors, all of them or none."""
        found = []
        for name, programs in _PIPES.items():
            symbol = self.symbols.get(name)
            site = site_for_symbol(self._elf, symbol, self._rules) if symbol is not None else None
            if symbol is None or site is None or site.cost is Cost.NONE:
                return
            at = self._elf.to_offset(symbol.value + site.offset)
            found += [FollowSite(self._number, program, at, at_return) for program, at_return in programs]
        yield from found

    def callback_sites(self, *, in_python: bool) -> Iterator[FollowSite]:
        """Yield the sites where callbacks begin and end, and take their messages."""
        for site in callback_sites(self._elf, self.symbols, self._rules, in_python=in_python):
            yield FollowSite(self._number, site.program, site.offset, False, site.cookie)

    def tls_sites(self) -> Iterator[FollowSite]:
        """Yield the sites where OpenSSL reads and writes in clear, all of them or none."""
        if not self.symbols.keys() >= _TLS_LEAST:
            return
        found, taken = [], set()
        for name, programs in _TLS.items():
            symbol = self.symbols.get(name)
            if symbol is None or symbol.value in taken:
                continue
            taken.add(symbol.value)
            site = site_for_symbol(self._elf, symbol, self._rules)
            if site.cost is Cost.NONE:
                return  # what is read would be told, and what is written not
            at = self._elf.to_offset(symbol.value + site.offset)
            found += [FollowSite(self._number, program, at, at_return) for program, at_return in programs]
        yield from found

    def queue_sites(self) -> Iterator[FollowSite]:
        """Yield the sites where items go through queues."""
        image = self._image
        mine = [m for m in self._shown.mappings() if m.name == image.path]
        data = [Span(m.start, m.end) for m in mine if m.permissions[:1] == b"r" and b"x" not in m.permissions]
        found = list(methods(self._memory, data, Span(image.start, image.end), _QUEUE))
        anchors = [m.entry for m in found if m.name == _TELLING]
        taken = set()
        for method in found:
            if method.function in taken or not any(abs(method.entry - at) < _QUEUE_TABLE for at in anchors):
                continue
            taken.add(method.function)
            symbol = function_at(self._elf, method.function - self._bias, method.name)
            for program, at_return in _QUEUE[method.name]:
                yield self._site(program, symbol, at_return=at_return)

    def _site(self, program: str, symbol: Symbol, *, at_return: bool = False) -> FollowSite:
        site = site_for_symbol(self._elf, symbol, self._rules)
        if site.cost is Cost.NONE:
            raise UnsupportedPythonError(f"{self._elf.path}: {symbol.name} cannot be probed: {site.reason}")
        return FollowSite(self._number, program, self._elf.to_offset(symbol.value + site.offset), at_return)
