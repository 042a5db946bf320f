"""Is a kernel found by the host pointer that stands for it?"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.elf import ElfFile
from otel_gpu.errors import ElfError
from otel_gpu.symbols import hip_kernels
from otel_gpu.symbols.hip_kernels import HostSymbols, kernel_of, symbol_at


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

        assert symbol_at(elf, symbols["_Z2kxPf"]) == "_Z2kxPf"
        assert symbol_at(elf, symbols["_Z17__device_stub__kxPf"]) == "_Z17__device_stub__kxPf"
        assert symbol_at(elf, symbols["_Z2kxPf"] + 1) is None


def test_an_address_of_this_process_is_looked_up_in_its_file(library: Path) -> None:
    import ctypes

    loaded = ctypes.CDLL(str(library))
    program = (os.getpid(), 1)
    symbols = HostSymbols()
    handle = ctypes.addressof(ctypes.c_void_p.in_dll(loaded, "_Z2kxPf"))

    assert symbols.kernel(program, handle) == "_Z2kxPf"
    assert symbols.kernel(program, handle + 1).startswith("kernels.so+0x")
    assert symbols.kernel(program, 8) is None


def test_a_process_that_is_gone_has_no_names() -> None:
    assert HostSymbols().kernel((2**22 + 5, 1), 0x1000) is None


def test_files_are_not_read_again_for_every_address_outside_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    monkeypatch.setattr(hip_kernels, "_modules", lambda pid: reads.append(pid) or [])
    symbols = HostSymbols()

    for address in range(100):
        symbols.kernel((1, 1), address)

    assert len(reads) == 1


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_tables_are_refused_or_give_nothing(data: st.DataObject, library: Path) -> None:
    raw = bytearray(library.read_bytes())
    for _ in range(data.draw(st.integers(1, 12))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))

    try:
        with ElfFile.from_bytes(bytes(raw)) as elf:
            name = symbol_at(elf, 0x4000)
            assert name is None or len(name) <= 4096
    except ElfError:
        pass
