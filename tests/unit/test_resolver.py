"""A launch's stack names its kernel only where all that it shows agrees."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.cuda.kernel_names import programs, resolver
from otel_gpu.receivers.cuda.kernel_names.cache import SymbolCache
from otel_gpu.receivers.cuda.kernel_names.kernels import KernelTable
from otel_gpu.receivers.cuda.kernel_names.launches import Launch, Module, launching_file, told_by_stack
from otel_gpu.receivers.cuda.kernel_names.programs import KnownProgram
from otel_gpu.receivers.cuda.kernel_names.resolver import KernelNameResolver
from otel_gpu.receivers.cuda.kernel_names.stub_map import StubMap
from otel_gpu.receivers.cuda.kernel_names.words import read_words
from otel_gpu.sandbox.files import MappedFile
from otel_gpu.sandbox.mappings import mapped_file, parse_executable
from otel_gpu.sandbox.parsers import Parsers

PROGRAM = (os.getpid(), 1)
SP = 0x7FFE0000
BASE = 0x555500000000
ALPHA, BETA = 0x100, 0x200
LAUNCHER, WRAPPER, ELSEWHERE = 0x1000, 0x2000, 0x3000


class Stubs:
    """Stands in for the map of a file: two stubs, a function that uses one and a function that uses both."""

    stubs = (ALPHA, BETA)

    def name_of(self, address: int) -> str | None:
        return {ALPHA: "alpha", BETA: "beta"}.get(address)

    def names_used_at(self, address: int) -> frozenset[str]:
        if LAUNCHER <= address < LAUNCHER + 0x100:
            return frozenset({"alpha"})
        if WRAPPER <= address < WRAPPER + 0x100:
            return frozenset({"alpha", "beta"})
        return frozenset()


EXTENT = (BASE, BASE + 0x10000)
MODULES = [Module(*EXTENT, BASE, "program", Stubs(), EXTENT)]


def launch(*words: int, fp: int = 0, saved: tuple[int, ...] = (0,) * 5, program: tuple[int, int] = PROGRAM) -> Launch:
    stack = struct.pack(f"<{len(words)}Q", *words).ljust(2048, b"\0")
    return Launch(program, 0xBEEF, BASE + 1, SP, fp, saved, stack)


def test_a_caller_that_uses_one_stub_names_it() -> None:
    assert told_by_stack(launch(BASE + LAUNCHER + 20), MODULES) == "alpha"


def test_a_caller_that_uses_several_is_settled_by_the_stub_on_the_stack_below_it() -> None:
    # driver <- runtime (frame at SP+8) <- wrapper (frame at SP+40): the runtime still holds the stub.
    words = (0x7F00_0000, SP + 40, BASE + ELSEWHERE, BASE + BETA, 0, 0, BASE + WRAPPER + 8)

    assert told_by_stack(launch(*words, fp=SP + 8), MODULES) == "beta"


def test_a_saved_register_may_hold_the_stub() -> None:
    assert told_by_stack(launch(BASE + WRAPPER, saved=(0, BASE + ALPHA, 0, 0, 0)), MODULES) == "alpha"


def test_two_stubs_that_both_stand_there_name_nothing() -> None:
    words = (0x7F00_0000, SP + 40, BASE + ELSEWHERE, BASE + BETA, BASE + ALPHA, 0, BASE + WRAPPER + 8)

    assert told_by_stack(launch(*words, fp=SP + 8), MODULES) is None


def test_a_stub_above_the_caller_is_somebody_elses() -> None:
    words = (0x7F00_0000, SP + 40, BASE + ELSEWHERE, 0, 0, 0, BASE + WRAPPER + 8, BASE + BETA)

    assert told_by_stack(launch(*words, fp=SP + 8), MODULES) is None


def test_an_unknown_caller_names_nothing() -> None:
    assert told_by_stack(launch(BASE + ELSEWHERE), MODULES) is None
    assert told_by_stack(launch(0x1234), MODULES) is None
    assert told_by_stack(launch(BASE + LAUNCHER), []) is None


@given(st.binary(min_size=2048, max_size=2048), st.integers(0, (1 << 64) - 1), st.integers(-4096, 4096))
def test_any_stack_is_read_within_bounds(stack: bytes, sp: int, frame: int) -> None:
    told = told_by_stack(Launch(PROGRAM, 1, 0, sp, sp + frame, (1, 2, 3, 4, 5), stack), MODULES)

    assert told in (None, "alpha", "beta")


def test_frame_pointers_that_lead_in_circles_end() -> None:
    words = (0x1, SP + 8, 0x2, SP + 8, 0x3)

    assert told_by_stack(launch(*words, fp=SP + 8), MODULES) is None


@pytest.fixture
def quiet(parsers: Parsers, tmp_path: Path) -> KernelNameResolver:
    found = KernelNameResolver(KernelTable(), parsers, SymbolCache(tmp_path))
    yield found
    found.close()


def mapped(name: str) -> MappedFile:
    """Return where this process has a library mapped."""
    with open("/proc/self/maps", "rb") as maps:
        rows = parse_executable(maps.read())
    return next(file for row in rows if (file := mapped_file(PROGRAM[0], row)).path.endswith(f"/{name}".encode()))


def test_a_name_is_pending_until_it_was_looked_for(quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(quiet, "_look", lambda _launch: gate.wait(10))

    quiet.submit(launch())
    quiet.submit(launch())
    assert quiet.pending(PROGRAM, 0xBEEF)
    assert not quiet.pending(PROGRAM, 0xCAFE)
    gate.set()
    quiet.settle(120)

    assert not quiet.pending(PROGRAM, 0xBEEF)


def test_how_many_kernels_have_no_name_is_told(quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, passed = threading.Event(), threading.Event()

    def look(waiting: Launch) -> bool:
        passed.set()
        gate.wait(20)
        if waiting.handle == 0xB0:
            quiet._kernels.learn(PROGRAM, 0xB0, "found")
        return False

    monkeypatch.setattr(quiet, "_look", look)
    for handle in (0xB0, 0xB1, 0xB2, 0xB1):
        quiet.submit(replace(launch(), handle=handle))
    assert passed.wait(20)

    assert quiet.unnamed() == (3, 0)
    gate.set()
    quiet.settle(120)
    assert quiet.unnamed() == (0, 2)
    quiet.forget(PROGRAM)
    assert quiet.unnamed() == (0, 0)


def test_that_kernels_wait_for_libraries_is_said_once_and_so_is_its_end(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (module,) = quiet._libraries.modules([mapped("libc.so.6")])

    def look(_launch: Launch) -> bool:
        quiet._libraries.read(module)
        monkeypatch.setattr(quiet._libraries._cache, "names", lambda _: frozenset())
        return False

    monkeypatch.setattr(quiet, "_look", look)
    for handle in (0xB0, 0xB1, 0xB2):
        quiet.submit(replace(launch(), handle=handle))
    quiet.settle(120)
    quiet.close()

    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("names of kernels")]
    assert len(said) == 2
    assert said[0].endswith("wait, libraries are read for the first time")
    assert said[1] == "names of kernels: none waits any more, 3 are not known"


def test_nobody_waits_for_ever(quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(quiet, "_look", lambda _launch: gate.wait(10))
    monkeypatch.setattr(resolver, "_DEADLINE_S", 0.0)

    quiet.submit(launch())

    assert not quiet.pending(PROGRAM, 0xBEEF)
    gate.set()


def test_launches_that_find_no_room_are_counted(
    parsers: Parsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "_MAX_QUEUE", 2)
    gate = threading.Event()
    busy = KernelNameResolver(KernelTable(), parsers, SymbolCache(tmp_path))
    monkeypatch.setattr(busy, "_look", lambda _launch: gate.wait(10))

    for _ in range(10):
        busy.submit(launch())

    assert busy.dropped >= 7
    gate.set()
    busy.settle(120)
    assert not busy.pending(PROGRAM, 0xBEEF)
    busy.close()


def test_a_process_without_kernels_and_one_that_is_gone_stay_unknown(quiet: KernelNameResolver) -> None:
    gone = launch(program=(1 << 22, 1))

    quiet.submit(launch())
    quiet.submit(gone)
    quiet.settle(120)

    assert quiet.caller(PROGRAM, 0xBEEF) is None
    assert quiet.caller(gone.program, 0xBEEF) is None
    quiet.forget(PROGRAM)


def test_what_is_known_is_not_looked_for(parsers: Parsers, tmp_path: Path) -> None:
    table = KernelTable()
    found = KernelNameResolver(table, parsers, SymbolCache(tmp_path))
    table.learn(PROGRAM, 0xBEEF, "known")

    found.submit(launch())

    assert not found.pending(PROGRAM, 0xBEEF)
    found.close()


def test_an_empty_map_names_nothing() -> None:
    assert StubMap().name_of(ALPHA) is None
    assert StubMap().names_used_at(LAUNCHER) == frozenset()


def kernels_of(program: tuple[str, ...]) -> StubMap:
    return StubMap.of({0x100 + 16 * i: name for i, name in enumerate(program)})


def test_what_the_stack_does_not_tell_the_programs_records_do(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"kernel{i}" for i in range(8))
    stubs = kernels_of(names)
    handles = [random.getrandbits(60) | 1 << 60 for _ in names]
    memory = mmap.mmap(-1, 1 << 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for i, (handle, stub) in enumerate(zip(handles, stubs.stubs, strict=True)):
        struct.pack_into("<QQQQ", memory, 1024 + 512 * i, handle, 7, 0, BASE + stub)
    module = Module(*EXTENT, BASE, "library", stubs, EXTENT)
    quiet._programs[PROGRAM] = KnownProgram(modules=[module], told=dict(zip(handles[:4], names, strict=False)))
    monkeypatch.setattr(quiet, "_refresh", lambda *_: None)
    words = (BASE + ELSEWHERE, BASE + stubs.stubs[6], BASE + stubs.stubs[7])

    quiet.submit(replace(launch(*words), handle=handles[6]))
    quiet.submit(replace(launch(*words[:2]), handle=handles[5]))
    quiet.settle(120)

    assert quiet._kernels.name(PROGRAM, handles[6]) == "kernel6"
    assert quiet._kernels.name(PROGRAM, handles[5]) is None
    assert quiet.caller(PROGRAM, handles[5]) == "library"
    assert not quiet.pending(PROGRAM, handles[5])
    memory.close()


@pytest.mark.parametrize("launched", ["itself", "what stands for it"])
def test_what_the_launching_library_keeps_with_a_handle_names_it(
    launched: str, quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"kernel{i}" for i in range(5))
    handles = [random.getrandbits(60) | 1 << 60 for _ in names]
    memory = mmap.mmap(-1, 1 << 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = ctypes.c_char.from_buffer(memory)
    start = ctypes.addressof(view)
    for i, (handle, name) in enumerate(zip(handles, names, strict=True)):
        struct.pack_into("<QQQ", memory, 1024 + 512 * i, start + 0x8000 + 64 * i, 0, handle)
        struct.pack_into("16s", memory, 0x8000 + 64 * i, name.encode())
    extent = (start, start + (1 << 16))
    module = Module(*extent, start, "library", kernels_of(names), extent)
    quiet._programs[PROGRAM] = KnownProgram(modules=[module], told=dict(zip(handles[:4], names, strict=False)))
    monkeypatch.setattr(quiet, "_refresh", lambda *_: None)

    function = handles[4] if launched == "itself" else handles[4] ^ 0xFF
    quiet._kernels.alias(PROGRAM, function, handles[4])

    quiet.submit(replace(launch(start + 0x4000), handle=function))
    quiet.settle(120)

    assert quiet._kernels.name(PROGRAM, function) == "kernel4"
    del view
    memory.close()


def test_kernels_that_their_variables_name_show_what_the_drivers_records_are_like(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = threading.Event()
    monkeypatch.setattr(quiet._driver, "judge", lambda *_: judged.set())
    monkeypatch.setattr(quiet, "_module_at", lambda *_: MODULES[0])
    monkeypatch.setattr(quiet, "_refresh", lambda *_: None)
    handles = {0xBEE0 + n: f"kernel{n}" for n in range(3)}

    def read_handles(program: tuple[int, int], _known: object) -> None:
        for handle, name in handles.items():
            quiet._kernels.learn(program, handle, name)

    monkeypatch.setattr(quiet, "_read_handles", read_handles)
    for handle in handles:
        quiet.submit(replace(launch(), handle=handle))

    assert judged.wait(20)


def test_few_programs_are_compared_to_what_is_known_of_their_driver_however_many_could_be(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, judged = threading.Event(), []
    monkeypatch.setattr(quiet._driver, "launched_known", lambda *_: True)
    monkeypatch.setattr(quiet._driver, "judge", lambda program, driver_of, _: driver_of() and judged.append(program))
    monkeypatch.setattr(quiet, "_module_at", lambda *_: gate.wait(20) and MODULES[0])
    many = [launch(program=(PROGRAM[0], number)) for number in range(500)]
    for one in many:
        quiet._kernels.learn(one.program, one.handle, "known")

    for one in many:
        quiet.submit(one)
        quiet.submit(one)

    assert quiet._queue.unfinished <= 8
    gate.set()
    quiet.settle(20)
    assert 0 < len(judged) == len(set(judged)) <= 8
    quiet.submit(many[-1])
    quiet.settle(20)
    assert judged[-1] == many[-1].program


def test_drivers_are_asked_though_launches_never_cease(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    monkeypatch.setattr(resolver, "_QUIET_S", 1_000.0)
    monkeypatch.setattr(quiet, "_look", lambda _launch: True)
    monkeypatch.setattr(quiet._driver, "name", lambda *_: asked.set() or set())
    monkeypatch.setattr(quiet, "_module_at", lambda *_: MODULES[0])
    monkeypatch.setattr(quiet, "_memory", lambda _program: None)

    quiet.submit(launch())

    assert asked.wait(20)


def test_what_waits_for_a_program_that_has_ended_waits_no_longer(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "_QUIET_S", 1_000.0)
    monkeypatch.setattr(resolver, "_NOISY_S", 1_000.0)
    monkeypatch.setattr(quiet, "_look", lambda _launch: True)
    looked = threading.Event()
    monkeypatch.setattr(quiet, "_is_unread", lambda _launch: looked.set())
    quiet.submit(launch())
    assert looked.wait(20)
    assert quiet.pending(PROGRAM, 0xBEEF)

    quiet.forget(PROGRAM)
    quiet.settle(20)

    assert not quiet.pending(PROGRAM, 0xBEEF)


def test_who_launches_is_known_before_the_first_library_is_read(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(quiet, "_look", lambda _launch: gate.wait(20))
    mapping = mapped("libc.so.6")
    noted = threading.Event()
    note = quiet._note_callers
    monkeypatch.setattr(quiet, "_note_callers", lambda launches: (note(launches), noted.set()))

    quiet.submit(launch(mapping.start + 8))
    assert noted.wait(20)

    assert quiet.pending(PROGRAM, 0xBEEF)
    assert quiet.caller(PROGRAM, 0xBEEF) == "libc.so.6"
    gate.set()


def test_where_code_of_no_file_launches_the_file_that_calls_it_is_shown() -> None:
    compiled = 0x7F00_0000

    assert launching_file(launch(BASE + ELSEWHERE), MODULES) == "program"
    assert launching_file(launch(compiled, SP + 40, BASE + ELSEWHERE, fp=SP + 8), MODULES) == "program"
    assert launching_file(launch(compiled, SP + 40, compiled, fp=SP + 8), MODULES) is None


def unread(at: int, name: str, directory: str = "/lib", size: int = 0x10000) -> Module:
    """Make a library whose kernels are still to be read."""
    extent = (BASE + at, BASE + at + size)
    return Module(
        *extent,
        extent[0],
        name,
        None,
        extent,
        MappedFile(PROGRAM[0], *extent, 0, (0, 0), 1, f"{directory}/{name}".encode()),
    )


class Library:
    """Stands in for the files of modules: says which were read, and what is in them."""

    def __init__(self, found: KernelNameResolver, monkeypatch: pytest.MonkeyPatch, *modules: Module) -> None:
        self.read: list[str] = []
        self.kernels: dict[str, StubMap] = {}
        found._programs[PROGRAM] = self.known = KnownProgram(modules=list(modules))
        monkeypatch.setattr(found, "_refresh", lambda *_: None)
        monkeypatch.setattr(found, "_read_library", self._read)
        monkeypatch.setattr(programs, "_REREAD_S", 0.0)

    def _read(self, known: KnownProgram, module: Module) -> None:
        self.read.append(module.name)
        known.put(module, self.kernels.get(module.name, StubMap()))


def test_only_the_library_that_launches_is_read_when_its_stack_tells(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(quiet, monkeypatch, unread(0, "launches"), unread(0x20000, "others"))
    library.kernels["launches"] = StubMap.of({ALPHA: "alpha"}, users=((LAUNCHER,), (LAUNCHER + 0x100,), (ALPHA,)))

    quiet.submit(launch(BASE + LAUNCHER + 20))
    quiet.settle(120)

    assert quiet._kernels.name(PROGRAM, 0xBEEF) == "alpha"
    assert library.read == ["launches"]


def test_a_library_without_kernels_is_passed_over(quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(quiet, monkeypatch, unread(0, "launches"), unread(0x20000, "empty"), unread(0x40000, "others"))
    library.kernels["launches"] = StubMap.of({ALPHA: "alpha"}, users=((LAUNCHER,), (LAUNCHER + 0x100,), (ALPHA,)))
    words = (BASE + 0x20500, SP + 40, BASE + LAUNCHER + 20)

    quiet.submit(launch(*words, fp=SP + 8))
    quiet.settle(120)

    assert quiet._kernels.name(PROGRAM, 0xBEEF) == "alpha"
    assert library.read == ["empty", "launches"]


def test_the_other_libraries_are_read_when_nothing_else_tells_and_until_one_does(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = mmap.mmap(-1, 1 << 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = ctypes.c_char.from_buffer(memory)
    start = ctypes.addressof(view)
    handle = random.getrandbits(60) | 1 << 60
    struct.pack_into("<Q", memory, 0x800, handle)
    small = unread(start - BASE, "small", size=0x8000)
    library = Library(
        quiet,
        monkeypatch,
        unread(0, "launches"),
        unread(0x40000, "large", size=0x20000),
        small,
        unread(0x80000, "beside", directory="/lib", size=0x40000),
    )
    library.known.modules[1:3] = [
        replace(m, file=msgspec.structs.replace(m.file, path=f"/far/{m.name}".encode()))
        for m in library.known.modules[1:3]
    ]
    library.kernels["launches"] = StubMap.of({ALPHA: "alpha"})
    library.kernels["small"] = StubMap.of({BETA: "beta"}, handles=((0x800,), (BETA,)))

    quiet.submit(replace(launch(BASE + ELSEWHERE), handle=handle))
    quiet.settle(120)

    assert quiet._kernels.name(PROGRAM, handle) == "beta"
    assert library.read == ["launches", "beside", "small"]
    del view
    memory.close()


def test_a_program_with_many_libraries_does_not_hold_up_another(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("first", "second", "third", "fourth", "fifth")
    library = Library(quiet, monkeypatch, *(unread(n * 0x10000, name) for n, name in enumerate(names)))
    another = (PROGRAM[0], 2)
    quiet._programs[another] = KnownProgram(modules=[unread(0x80000, "another")])
    started, gate = threading.Event(), threading.Event()
    read = quiet._read_library

    def read_later(*arguments: Any) -> None:
        started.set()
        gate.wait(20)
        read(*arguments)

    monkeypatch.setattr(quiet, "_read_library", read_later)
    for n in range(len(names)):
        quiet.submit(replace(launch(BASE + n * 0x10000 + 20), handle=0xB0 + n))
    assert started.wait(20)
    quiet.submit(replace(launch(BASE + 0x80000 + 20), program=another))
    gate.set()
    quiet.settle(120)

    assert set(library.read) == {*names, "another"}
    assert library.read.index("another") <= 2


def test_a_program_whose_files_are_read_in_vain_has_no_more_of_them_read(
    quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "_MAX_WASTED_S", 0.05)
    monkeypatch.setattr(quiet, "_refresh", lambda *_: None)
    asked: list[str] = []

    def read(module: Module) -> StubMap:
        asked.append(module.name)
        if module.name.startswith("hangs"):
            time.sleep(0.03)
            quiet._libraries.unread += 1
        return StubMap()

    monkeypatch.setattr(quiet._libraries, "read", read)
    another = (PROGRAM[0], 2)
    quiet._programs[PROGRAM] = KnownProgram(modules=[unread(n * 0x10000, f"hangs {n}") for n in range(6)])
    quiet._programs[another] = KnownProgram(modules=[unread(n * 0x10000, f"good {n}") for n in range(6)])
    for program in (PROGRAM, another):
        for n in range(6):
            quiet.submit(replace(launch(BASE + n * 0x10000 + 20), handle=0xB0 + n, program=program))
    quiet.settle(120)

    assert sum(name.startswith("hangs") for name in asked) == 2
    assert sum(name.startswith("good") for name in asked) == 6


def test_at_the_end_records_are_searched_at_once(quiet: KernelNameResolver, monkeypatch: pytest.MonkeyPatch) -> None:
    Library(quiet, monkeypatch, Module(*EXTENT, BASE, "program", StubMap(), EXTENT))
    monkeypatch.setattr(quiet._driver, "name", lambda _program, _ip, launched: set(launched))
    quiet._search_at = time.monotonic() + 3600

    monkeypatch.setattr(quiet, "_module_at", lambda *_: MODULES[0])
    quiet.submit(launch(BASE + ELSEWHERE))
    quiet.settle(0.5)
    waited = quiet.pending(PROGRAM, 0xBEEF)
    quiet.settle_last(20)

    assert waited
    assert not quiet.pending(PROGRAM, 0xBEEF)


def test_handles_are_told_when_their_variables_have_them_and_once() -> None:
    class Memory:
        values = (0, BASE + ALPHA)

        def read(self, address: int, size: int) -> bytes:
            return struct.pack("<QQ", *self.values)[address - BASE - 0x800 :][:size]

    memory, known = Memory(), KnownProgram()
    stubs = StubMap.of({ALPHA: "alpha", BETA: "beta"}, handles=((0x800, 0x808), (ALPHA, BETA)))
    known.modules = [module] = [Module(*EXTENT, BASE, "program", stubs, EXTENT)]

    read = partial(read_words, memory)
    assert list(known.new_handles(read)) == []
    memory.values = (0xAA, BASE + ALPHA)
    assert list(known.new_handles(read)) == [(0xAA, "alpha")]
    memory.values = (0xAA, 0xBB)
    assert list(known.new_handles(read)) == [(0xBB, "beta")]
    another = StubMap.of({ALPHA: "another", BETA: "beta"}, handles=((0x800, 0x808), (ALPHA, BETA)))
    known.modules = [replace(module, stubs=another)]
    assert list(known.new_handles(read)) == [(0xAA, "another"), (0xBB, "beta")]


def test_a_caller_in_another_module_does_not_speak_for_a_librarys_launch() -> None:
    library = (BASE + 0x20000, BASE + 0x30000)
    modules = [*MODULES, Module(*library, library[0], "library", kernels_of(("gamma",)), library)]
    words = (library[0] + 0x500, 0, 0, BASE + LAUNCHER + 8)

    assert told_by_stack(launch(*words, fp=SP + 16), modules) is None
    assert told_by_stack(launch(0x7F00_0000, *words[1:], fp=SP + 16), modules) == "alpha"
