"""Is code that keeps frame pointers told from code that does not?"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.stacks.eh_frame.pointers import describes_most, keeps_frame_pointers
from otel_gpu.stacks.eh_frame.rows import UnwindTable
from otel_gpu.stacks.eh_frame.tables import compile_table

FRAMED, BARE = bytes.fromhex("554889e5"), bytes.fromhex("4883ec18")
SOURCE = "\n".join(
    f"__attribute__((noinline)) int f{i}(int x) {{ return x * {i + 3} + f{i + 1}(x + 1); }}" for i in range(9)
)
SOURCE = "int f9(int);\n" + "\n".join(reversed(SOURCE.splitlines())) + "\nint f9(int x) { return x; }\n"


def image(functions: list[bytes], vaddr: int = 0x1000, machine: int = 62) -> ElfFile:
    """Make a file of functions of 32 bytes, after as many calls of them."""
    calls = b"".join(b"\xe8" + struct.pack("<i", 0x100 + 32 * i - 5 * i - 5) for i in range(len(functions))).ljust(
        0x100, b"\x90"
    )
    code = calls + b"".join(f.ljust(32, b"\x90") for f in functions) + bytes(64)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, machine, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    return ElfFile.from_bytes(
        header + struct.pack("<IIQQQQQQ", 1, 5, 120, vaddr, vaddr, len(code), len(code), 1) + code
    )


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        ([FRAMED] * 4, True),
        ([BARE] * 4, False),
        ([FRAMED, FRAMED, FRAMED, BARE], True),
        ([FRAMED, BARE, BARE], False),
        ([b"\xf3\x0f\x1e\xfa" + FRAMED] * 3, True),
        ([bytes.fromhex("493b6610765a") + FRAMED] * 3, True),  # Go's
        ([bytes.fromhex("5541544889fb4889e5")] * 3, True),
        ([bytes.fromhex("ff2500100000")] * 9 + [FRAMED] * 2, True),  # stubs are no functions
        ([FRAMED], False),  # too few to tell
        ([], False),
    ],
)
def test_most_of_the_functions_that_are_called_decide(functions: list[bytes], expected: bool) -> None:
    assert keeps_frame_pointers(image(functions)) is expected


def test_other_machines_are_not_judged() -> None:
    assert not keeps_frame_pointers(image([FRAMED] * 4, machine=183))


@pytest.mark.parametrize("keep", [True, False])
def test_what_a_compiler_made_is_told_apart(keep: bool, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    source, library = tmp_path / "f.c", tmp_path / "f.so"
    source.write_text(SOURCE)
    flag = f"-f{'no-' if keep else ''}omit-frame-pointer"
    subprocess.run(
        [compiler, "-O2", "-fno-inline", flag, "-shared", "-Wl,-Bsymbolic", "-o", library, source], check=True
    )

    with ElfFile(library) as elf:
        assert keeps_frame_pointers(elf) is keep


def test_a_table_of_all_functions_describes_most_and_an_empty_one_nothing() -> None:
    with ElfFile(os.path.realpath("/bin/sh")) as elf:
        table = compile_table(elf)

        assert describes_most(table, elf)
        assert not describes_most(UnwindTable(table.rows[:4], int(table.rows["pc"][4]), 1, {}), elf)


@settings(max_examples=100)
@given(st.binary(max_size=400))
def test_any_code_is_judged_without_failing(code: bytes) -> None:
    keeps_frame_pointers(image([code[i : i + 32] for i in range(0, len(code), 32)]))
