"""Are the kernels of NVIDIA's real libraries, and of what nvcc builds, named as their symbol tables and fatbins say?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_gpu.errors import ElfError
from otel_gpu.receivers.cuda.kernel_names.fatbin import FATBIN_SECTIONS, kernels_of_image
from otel_gpu.receivers.cuda.kernel_names.stub_map import StubMap
from otel_gpu.receivers.cuda.kernel_names.stubs import read_stub_map
from otel_gpu.sandbox.elf import EM_X86_64, STT_FUNC, ElfFile
from otel_gpu.stacks.demangle.names import demangle, shorten
from tests.e2e import ground
from tests.plain_stub_reader import handles, read_plainly

CUBLAS, NCCL = "libcublas.so.12", "libnccl.so.2"
PROGRAMS = (
    "runtime_calls_13_static",
    "runtime_calls_13_stripped",
    "runtime_calls_13_shared",
    "runtime_calls_13_perthread",
    "runtime_calls_12_static",
    "runtime_calls_12_shared",
)


def _kernels(elf: ElfFile) -> set[str]:
    """Return the kernels in a file's fatbins, all of which can be read."""
    found = [kernels_of_image(elf.peek(s.offset, s.size)) for s in elf.sections if s.name in FATBIN_SECTIONS]
    assert sum(code.unreadable for code in found) == 0
    return {name for code in found for name in code.kernels}


def _functions(elf: ElfFile) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for symbol in elf.symbols(".symtab"):
        if symbol.type == STT_FUNC:
            found.setdefault(symbol.value, set()).add(symbol.name)
    return found


def _wrong(stubs: StubMap, truth: dict[int, set[str]]) -> list[tuple[str, set[str]]]:
    """Return the kernels whose stub is another function. nvcc makes some stubs static: `_ZL1fv` for the kernel `_Z1fv`."""
    wrong = []
    for address, name in zip(stubs.stubs, stubs.names, strict=True):
        names = truth.get(address, set())
        if demangle(name) not in {demangle(n) for n in names}:
            wrong.append((name, names))
    return wrong


def test_every_kernel_of_nccl_has_the_name_in_its_symbol_table() -> None:
    with ElfFile(ground.libraries() / NCCL) as elf:
        stubs = read_stub_map(elf)
        truth = _functions(elf)
        device = _kernels(elf)

    assert _wrong(stubs, truth) == []
    assert set(stubs.names) == device
    assert stubs.skipped == 0
    assert len(stubs) == 242


def test_every_kernel_in_the_fatbins_of_cublas_has_a_stub() -> None:
    with ElfFile(ground.libraries() / CUBLAS) as elf:
        stubs = read_stub_map(elf)
        device = _kernels(elf)

    assert set(stubs.names) == device
    assert stubs.skipped == 0
    assert (len(stubs), len(device)) == (3946, 3608)


def test_every_mangled_kernel_of_cublas_and_nccl_is_demangled() -> None:
    for library in (CUBLAS, NCCL):
        with ElfFile(ground.libraries() / library) as elf:
            names = set(read_stub_map(elf).names)

        assert [n for n in names if demangle(n).startswith(("_Z", "__nv_static"))] == []
        assert [n for n in names if re.search(r"[<>\s]", shorten(n).replace("(anonymous namespace)", ""))] == []


def _assert_read_rightly(path: Path) -> int:
    """Compare what is read with what decoding every instruction tells; return how many kernels there are."""
    with ElfFile(path) as elf:
        found, plain = read_stub_map(elf), read_plainly(elf)

    assert dict(zip(found.stubs, found.names, strict=True)) == plain.names
    assert handles(found) == {variable: plain.names[stub] for variable, stub in plain.handles.items()}
    users: dict[int, set[str]] = {}
    for _, end, stub in plain.users:
        users.setdefault(end, set()).add(plain.names[stub])
    assert {end: found.names_used_at(end) for end in users} == users
    assert found.skipped == 0
    return len(found)


@pytest.mark.parametrize("library", [CUBLAS, "libcublasLt.so.12", NCCL])
def test_nvidias_libraries_are_read_as_if_everything_was_decoded(library: str) -> None:
    assert _assert_read_rightly(ground.libraries() / library) > 100


@pytest.mark.torch
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["torch", "vllm"])
def test_all_libraries_are_read_as_if_everything_was_decoded(name: str) -> None:
    kernels = 0
    for path in sorted(ground.packages(name).rglob("*.so*")):
        if path.is_file() and _has_device_code(path):
            kernels += _assert_read_rightly(path)

    assert kernels > 50_000


def _has_device_code(path: Path) -> bool:
    try:
        with ElfFile(path) as elf:
            return elf.machine == EM_X86_64 and any(elf.section(name) is not None for name in FATBIN_SECTIONS)
    except (ElfError, OSError):
        return False


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_nvcc_builds_tells_its_stubs_and_handles(program: str) -> None:
    with ElfFile(_program(program)) as elf:
        stubs = read_stub_map(elf)
        truth = _functions(elf)
        symbols = {s.value: s.name for s in elf.symbols(".symtab")}
        device = _kernels(elf)

    assert set(stubs.names) == device
    assert sorted(handles(stubs).values()) == sorted(stubs.names)
    if truth:
        assert _wrong(stubs, truth) == []
        # The variable is local to the function __device_stub_<name>, so its symbol says whose handle it holds.
        assert [n for v, n in handles(stubs).items() if f"__device_stub_{n}" not in symbols[v]] == []


def _program(name: str) -> Path:
    path = ground.part("cuprograms") / name
    if not path.exists():
        pytest.skip(f"{name} was not built: its runtime cannot be had")
    return path
