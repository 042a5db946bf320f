"""Where do functions return, as compilers make them? Written in assembly, so that each is what it is said to be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from otel_gpu.probes.returns import WaysOut, ways_out
from otel_gpu.sandbox.elf import ElfFile

_SOURCE = r"""
.macro begin name
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
.endm
.macro done name
    .cfi_endproc
    .size \name, . - \name
.endm
    .text
begin two_returns
    test %edi, %edi
    je 1f
    ret
1:  repz ret
done two_returns

begin goes_on_elsewhere
    test %edi, %edi
    je 1f
    ret
1:  jmp two_returns
done goes_on_elsewhere

begin goes_on_by_a_pointer
    mov (%rdi), %rax
    jmp *16(%rax)
done goes_on_by_a_pointer

begin has_a_part_put_aside
    sub $24, %rsp
    .cfi_adjust_cfa_offset 24
    test %edi, %edi
    je put_aside
    add $24, %rsp
    .cfi_adjust_cfa_offset -24
    ret
done has_a_part_put_aside

begin has_a_table
    push %rbx
    .cfi_adjust_cfa_offset 8
    lea table(%rip), %rbx
    movslq (%rbx,%rdi,4), %rax
    add %rbx, %rax
    notrack jmp *%rax
1:  pop %rbx
    .cfi_adjust_cfa_offset -8
    ret
done has_a_table

begin never_returns
    ud2
done never_returns

begin is_no_code
    ret
    .byte 0x06
done is_no_code

    .section .text.unlikely
put_aside:
    .cfi_startproc
    .cfi_def_cfa_offset 32
    ud2
    .cfi_endproc

    .section .rodata
table:
    .long 1b - table
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (compiler := shutil.which("gcc")) is None:
        pytest.skip("needs gcc")
    directory = tmp_path_factory.mktemp("ways-out")
    (directory / "functions.s").write_text(_SOURCE)
    made = directory / "libfunctions.so"
    done = subprocess.run(
        [compiler, "-shared", "-nostdlib", "-Wl,-Bsymbolic", "-o", made, directory / "functions.s"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"not x86-64: {done.stderr.splitlines()[:1]}")
    return made


def _of(library: Path, name: str) -> tuple[WaysOut, list[int]]:
    """Return the ways out of a function, and where in it the returns are."""
    with ElfFile(library) as elf:
        symbol = next(s for s in elf.symbols() if s.name == name)
        found = ways_out(elf, symbol)
        codes = [elf.read_vaddr(address, 2) for address in found.returns]
        assert all(code[:1] == b"\xc3" or code == b"\xf3\xc3" for code in codes)
        return found, [address - symbol.value for address in found.returns]


@pytest.mark.parametrize(
    ("name", "returns", "are_all"),
    [
        ("two_returns", 2, True),
        ("goes_on_elsewhere", 1, False),
        ("goes_on_by_a_pointer", 0, False),
        ("has_a_part_put_aside", 1, True),
        ("has_a_table", 1, True),
        ("never_returns", 0, True),
        ("is_no_code", 1, False),
    ],
)
def test_returns_are_found_and_it_is_known_whether_they_are_all(
    library: Path, name: str, returns: int, are_all: bool
) -> None:
    found, offsets = _of(library, name)

    assert len(offsets) == len(set(offsets)) == returns
    assert found.are_all is are_all


def test_nothing_is_known_of_a_function_without_a_size(library: Path) -> None:
    with ElfFile(library) as elf:
        symbol = next(s for s in elf.symbols() if s.name == "two_returns")
        for size in (0, 1 << 40):
            unknown = type(symbol)(**{f: getattr(symbol, f) for f in symbol.__dataclass_fields__} | {"size": size})
            assert ways_out(elf, unknown) == WaysOut((), are_all=False)
