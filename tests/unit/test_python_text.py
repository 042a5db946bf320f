from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.sandbox.elf import ElfFile, Symbol
from otel_gpu.stacks.cpython.eval_loop import eval_ranges_without_symbols
from otel_gpu.stacks.cpython.layout import TssKind, UnsupportedPythonError
from otel_gpu.stacks.cpython.text import PythonBinary, analyse_python
from otel_gpu.stacks.cpython.thread_state import NOT_FOUND, ThreadStateSlot, find_slot

RUNTIME = Symbol("_PyRuntime", 0x500000, 0x10000, 1, True)
CODE = 0x1000

_SID = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "otel-gpu" / "sid" / "usr"
_PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"

# Sizes of all parts and the thread state's place, as measured by disassembly and by walking the live interpreter.
KNOWN = {
    "3.8.18": ([34511], TssKind.KEY, 1396),
    "3.9.18": ([35197], TssKind.KEY, 588),
    "3.10.13": ([38051], TssKind.KEY, 588),
    "3.11.7": ([43345], TssKind.KEY, 596),
    "3.12.1": ([51245], TssKind.KEY, 1548),
    "3.13.0": ([48125], TssKind.KEY, 2164),
}
NEWEST = {
    "bin/python3.14": (0x030E0AF0, [1184, 84423], TssKind.KEY, 2340, 0),
    "bin/python3.15": (0x030F02F0, [844, 82341], TssKind.SLOT, -40, 0),
    "lib/x86_64-linux-gnu/libpython3.14.so.1.0": (0x030E0AF0, [72420], TssKind.KEY, 2340, 0),
    "lib/x86_64-linux-gnu/libpython3.15.so.1.0": (0x030F02F0, [64657], TssKind.DTV, None, 40),
}


def machine_code(code: bytes) -> ElfFile:
    """Wrap code, loaded at CODE, in an ELF file of one segment."""
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    return ElfFile.from_bytes(header + struct.pack("<IIQQQQQQ", 1, 5, 120, CODE, CODE, len(code), len(code), 1) + code)


def slot_of(code: str) -> ThreadStateSlot:
    raw = bytes.fromhex(code)
    return find_slot(machine_code(raw), Symbol("f", CODE, len(raw), 2, True), RUNTIME)


@pytest.mark.parametrize("version", KNOWN)
def test_shared_interpreters_of_pyenv(version: str) -> None:
    paths = list((_PYENV / version / "lib").glob("libpython3.*.so.1.0"))
    if not paths:
        pytest.skip(f"pyenv has no shared CPython {version} here")
    sizes, kind, offset = KNOWN[version]

    with ElfFile(paths[0]) as elf:
        binary = analyse_python(elf)

    assert binary is not None
    assert ".".join(map(str, binary.version)) == version.rpartition(".")[0]
    assert [stop - start for start, stop in binary.eval_ranges] == sizes
    assert (binary.slot.kind, binary.slot.offset) == (kind, offset)
    assert (binary.layout().tss_kind, binary.layout().tss_offset) == (kind, offset)
    assert not binary.is_tail_call


@pytest.mark.parametrize("name", NEWEST)
def test_interpreters_of_debian_unstable(name: str) -> None:
    if not (_SID / name).exists():
        pytest.skip("no Debian unstable root: run tests/ground/sid.sh once")
    release, sizes, kind, offset, block = NEWEST[name]

    with ElfFile(_SID / name) as elf:
        binary = analyse_python(elf)

    assert binary is not None
    if binary.release != release:
        pytest.skip(f"measured on {release:#x}, here is {binary.release:#x}")
    assert sorted(stop - start for start, stop in binary.eval_ranges) == sizes
    assert (binary.slot.kind, binary.slot.block) == (kind, block)
    assert offset in (None, binary.slot.offset)
    assert binary.layout().tss_kind is kind


def test_a_build_whose_opcodes_are_functions_is_refused() -> None:
    slot = ThreadStateSlot(TssKind.KEY, 596)
    binary = PythonBinary((3, 11), 0x030B0700, 0x1000, ((0x2000, 0x2400),), slot, None, 0, is_tail_call=True)

    with pytest.raises(UnsupportedPythonError, match=r"CPython 3\.11 is a tail-call build"):
        binary.layout()


def test_a_static_interpreters_loop_has_a_cold_part() -> None:
    if not os.path.exists("/usr/bin/python3.11"):
        pytest.skip("no static CPython 3.11 here: Debian 12 has one")

    with ElfFile("/usr/bin/python3.11") as elf:
        binary = analyse_python(elf)

    assert binary is not None
    assert len(binary.eval_ranges) == 2
    assert binary.slot == ThreadStateSlot(TssKind.KEY, 596)


def test_other_programs_are_no_interpreters() -> None:
    with ElfFile("/bin/sh") as elf:
        assert analyse_python(elf) is None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("488b05c1861600 488db870050000 e900000000", ThreadStateSlot(TssKind.KEY, 0x574), id="GOT, lea"),
        pytest.param(
            "488b05e5404400 53 488d9820090000 4889df e800000000", ThreadStateSlot(TssKind.KEY, 0x924), id="GOT, saved"
        ),
        pytest.param(
            "53 bb08060000 48031d930a1a01 4889df e800000000", ThreadStateSlot(TssKind.KEY, 0x60C), id="clang's addition"
        ),
        pytest.param("bf20095000 e900000000", ThreadStateSlot(TssKind.KEY, 0x924), id="fixed address"),
        pytest.param("8b3d4af24f00 e900000000", ThreadStateSlot(TssKind.KEY, 0x250), id="the key itself"),
        pytest.param("f30f1efa 64488b0425d8ffffff c3", ThreadStateSlot(TssKind.SLOT, -40), id="thread-local"),
        pytest.param("48c7c0d8ffffff 64488b00 c3", ThreadStateSlot(TssKind.SLOT, -40), id="thread-local by register"),
        pytest.param("488d3d61a64a00 e800000000 488b4028 c3", NOT_FOUND, id="no TLS relocation there"),
        pytest.param("bf20096000 e900000000", NOT_FOUND, id="an address outside the runtime"),
        pytest.param("31c0 c3", NOT_FOUND, id="always NULL"),
        pytest.param("ffffffff", NOT_FOUND, id="no code"),
    ],
)
def test_shapes_of_the_thread_state_getter(code: str, expected: ThreadStateSlot) -> None:
    assert slot_of(code) == expected


@pytest.mark.parametrize("version", ["3.8.18", "3.9.18", "3.10.13"])
def test_one_below_3_11_tells_its_version_whatever_it_is_called(version: str, tmp_path: Path) -> None:
    paths = list((_PYENV / version / "lib").glob("libpython3.*.so.1.0"))
    if not paths:
        pytest.skip(f"pyenv has no shared CPython {version} here")
    renamed = tmp_path / "interpreter"
    # A shared library calls itself by its name, too.
    renamed.write_bytes(paths[0].read_bytes().replace(b"\0libpython3.", b"\0libqython3."))

    with ElfFile(renamed) as elf:
        binary = analyse_python(elf)

    assert binary is not None
    assert binary.version == (3, int(version.split(".")[1]))


@pytest.mark.parametrize("name", ["3.13.0", *NEWEST])
def test_the_eval_loop_is_found_without_symbols(name: str) -> None:
    paths = [_SID / name] if name in NEWEST else list((_PYENV / name / "lib").glob("libpython3.*.so.1.0"))
    if not paths or not paths[0].exists():
        pytest.skip(f"no {name} here")
    with ElfFile(paths[0]) as elf:
        binary = analyse_python(elf)
        assert binary is not None

        assert eval_ranges_without_symbols(elf, (), binary.layout().tstate_frame) == binary.eval_ranges


def test_a_file_without_an_eval_loop_is_refused() -> None:
    with ElfFile("/bin/sh") as elf, pytest.raises(UnsupportedPythonError, match="no functions look like its eval loop"):
        eval_ranges_without_symbols(elf, (), 72)


def test_a_runtime_is_found_in_a_file_without_sections(tmp_path: Path) -> None:
    paths = list((_PYENV / "3.13.0" / "lib").glob("libpython3.*.so.1.0"))
    if not paths:
        pytest.skip("pyenv has no shared CPython 3.13.0 here")
    with ElfFile(paths[0]) as elf:
        expected = analyse_python(elf)
    image = bytearray(paths[0].read_bytes())
    image[40:48], image[60:64] = bytes(8), bytes(4)  # where the table is, and how much is in it

    binary = analyse_python(ElfFile.from_bytes(bytes(image)))

    assert expected is not None
    assert binary is not None
    assert (binary.runtime, binary.eval_ranges) == (expected.runtime, expected.eval_ranges)
    assert binary.is_stripped


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=96))
def test_any_code_is_decoded_or_refused(code: bytes) -> None:
    found = find_slot(machine_code(code), Symbol("f", CODE, len(code), 2, True), RUNTIME)

    assert found.kind is not TssKind.KEY or 0 < found.offset < RUNTIME.size + 4
