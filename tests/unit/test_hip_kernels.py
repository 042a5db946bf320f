"""Is a kernel found by the host pointer that stands for it?"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.discovery.program_id import ProgramId
from otel_gpu.errors import ElfError
from otel_gpu.receivers.cuda.kernel_names import resolver as module
from otel_gpu.receivers.cuda.kernel_names.cache import SymbolCache
from otel_gpu.receivers.cuda.kernel_names.hip_kernels import HostPointer, kernel_of, symbols_at
from otel_gpu.receivers.cuda.kernel_names.kernels import KernelTable
from otel_gpu.receivers.cuda.kernel_names.resolver import KernelNameResolver
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.sandbox.parsers import Parsers


@pytest.mark.parametrize(
    ("symbol", "kernel"),
    [
        ("_Z24__device_stub__vectoraddPfPKfS1_i", "_Z9vectoraddPfPKfS1_i"),
        ("_ZN2ns20__device_stub__scaleILi4EEEvPf", "_ZN2ns5scaleILi4EEEvPf"),
        ("__device_stub__plain", "plain"),
        ("_Z9vectoraddPfPKfS1_i", "_Z9vectoraddPfPKfS1_i"),
        ("main", "main"),
    ],
)
def test_a_host_symbol_gives_the_kernels_name(symbol: str, kernel: str) -> None:
    assert kernel_of(symbol) == kernel


@given(st.text(alphabet="_Z0123456789device_stubN", max_size=60))
def test_no_symbol_breaks_it(symbol: str) -> None:
    assert isinstance(kernel_of(symbol), str)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler: apt-get install gcc")
    path = tmp_path_factory.mktemp("hip") / "kernels.so"
    source = (
        "void _Z17__device_stub__kxPf(void) {} void *_Z2kxPf = _Z17__device_stub__kxPf; "
        "static int hidden = 1; int *use(void) { return &hidden; }"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-xc", "-", "-o", path], input=source, text=True, check=True)
    return path


def test_variables_and_functions_are_found_by_their_very_address(library: Path) -> None:
    with ElfFile(str(library)) as elf:
        symbols = {s.name: s.value for s in elf.symbols()}

        kernel, stub = symbols["_Z2kxPf"], symbols["_Z17__device_stub__kxPf"]
        assert symbols_at(elf, [kernel + 1, kernel, stub, -1]) == {
            kernel: "_Z2kxPf",
            stub: "_Z17__device_stub__kxPf",
        }


@pytest.fixture
def resolver(parsers: Parsers, tmp_path: Path) -> Iterator[KernelNameResolver]:
    found = KernelNameResolver(KernelTable(), parsers, SymbolCache(tmp_path))
    yield found
    found.close()


def named(resolver: KernelNameResolver, program: ProgramId, *handles: int) -> list[str | None]:
    for handle in handles:
        resolver.submit(HostPointer(program, handle))
    resolver.settle(120)
    assert not any(resolver.pending(program, handle) for handle in handles)
    return [resolver._kernels.name(program, handle) for handle in handles]


def test_an_address_of_this_process_is_looked_up_in_its_file(library: Path, resolver: KernelNameResolver) -> None:
    loaded = ctypes.CDLL(str(library))
    handle = ctypes.addressof(ctypes.c_void_p.in_dll(loaded, "_Z2kxPf"))

    symbol, nothing, nowhere = named(resolver, (os.getpid(), 1), handle, handle + 1, 8)

    assert symbol == "_Z2kxPf"
    assert nothing is not None
    assert nothing.startswith("kernels.so+0x")
    assert nowhere is None


def test_a_library_that_is_loaded_later_is_found(library: Path, resolver: KernelNameResolver, tmp_path: Path) -> None:
    program = (os.getpid(), 1)
    assert named(resolver, program, 8) == [None]
    later = shutil.copy(library, tmp_path / "later.so")
    handle = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.CDLL(later), "_Z2kxPf"))
    resolver._mapped_at.clear()

    assert named(resolver, program, handle) == ["_Z2kxPf"]


def test_a_process_that_is_gone_has_no_names(resolver: KernelNameResolver) -> None:
    assert named(resolver, (2**22 + 5, 1), 0x1000) == [None]


@pytest.fixture
def ended(library: Path, resolver: KernelNameResolver) -> tuple[ProgramId, int]:
    """A program that has ended since it was expected, and what it launched."""
    code = (
        "import ctypes, sys, time\n"
        f"loaded = ctypes.CDLL({str(library)!r})\n"
        "print(ctypes.addressof(ctypes.c_void_p.in_dll(loaded, '_Z2kxPf')), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        handle = int(process.stdout.readline())
        resolver.expect((process.pid, 1))
        resolver.settle(120)
        process.kill()
    return (process.pid, 1), handle


def test_a_program_that_has_ended_since_it_was_expected_has_its_names(
    ended: tuple[ProgramId, int], resolver: KernelNameResolver
) -> None:
    program, handle = ended

    assert named(resolver, program, handle) == ["_Z2kxPf"]
    # It is another one that has the process's number next.
    assert named(resolver, (program[0], 2), handle) == [None]
    resolver.forget(program)


def test_of_a_program_with_very_many_files_none_are_noted(
    resolver: KernelNameResolver, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(module, "_MAX_EXPECTED_OF_ONE", 1)
    program, handle = request.getfixturevalue("ended")

    assert named(resolver, program, handle) == [None]


def test_what_a_process_has_mapped_is_not_another_programs(library: Path, parsers: Parsers, tmp_path: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    handle = ctypes.addressof(ctypes.c_void_p.in_dll(loaded, "_Z2kxPf"))
    ran, runs = (os.getpid(), 1), (os.getpid(), 2)
    found = KernelNameResolver(KernelTable(), parsers, SymbolCache(tmp_path), runs=lambda program: program == runs)
    try:
        found.expect(ran)
        found.settle(120)

        assert named(found, ran, handle) == [None]
        assert named(found, runs, handle) == ["_Z2kxPf"]
    finally:
        found.close()


def test_files_are_not_read_again_for_every_address_outside_of_them(
    resolver: KernelNameResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[ProgramId] = []
    monkeypatch.setattr(resolver, "_refresh", lambda program, _known: reads.append(program))
    monkeypatch.setattr(module, "_REMAP_S", 60.0)

    named(resolver, (os.getpid(), 1), *range(1, 101))

    assert len(reads) == 1


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_tables_are_refused_or_give_nothing(data: st.DataObject, library: Path) -> None:
    raw = bytearray(library.read_bytes())
    for _ in range(data.draw(st.integers(1, 12))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))

    try:
        with ElfFile.from_bytes(bytes(raw)) as elf:
            assert all(len(name) <= 4096 for name in symbols_at(elf, [0x4000]).values())
    except ElfError:
        pass
