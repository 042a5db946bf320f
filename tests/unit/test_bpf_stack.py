"""Do the programs leave room on their stack? Kernels before 6.9 add up what a whole chain of functions takes."""

from __future__ import annotations

import bisect
from collections import defaultdict
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

import otel_gpu.bpf

OBJECTS = sorted((Path(otel_gpu.bpf.__file__).parent / "objects").glob("*.x86_64.bpf.o"))
STACK_BYTES = 512
FRAME_POINTER = 10
LOAD, STORE_IMMEDIATE, STORE = 1, 2, 3  # classes of instructions
MOVE, ADD_IMMEDIATE, CALL, LOAD_ADDRESS = 0xBF, 0x07, 0x85, 0x18
CALLED_HERE = 1  # in place of a source register
Function = tuple[str, int]
"""Its section and where it begins."""


def _depth(code: bytes) -> int:
    """How far below its frame pointer a function reaches, in the verifier's steps of 32 bytes: one at the least."""
    deepest = 0
    copies: set[int] = set()
    for at in range(0, len(code), 8):
        operation, registers = code[at], code[at + 1]
        target, source = registers & 15, registers >> 4
        if operation & 7 in (LOAD, STORE_IMMEDIATE, STORE):
            base = source if operation & 7 == LOAD else target
            if base == FRAME_POINTER:
                deepest = min(deepest, int.from_bytes(code[at + 2 : at + 4], "little", signed=True))
        if operation == ADD_IMMEDIATE and target in copies:
            deepest = min(deepest, _immediate(code, at))
        copies.discard(target)
        if operation == MOVE and source == FRAME_POINTER:
            copies.add(target)
    return max(-(deepest // 32), 1) * 32


def _immediate(code: bytes, at: int) -> int:
    return int.from_bytes(code[at + 4 : at + 8], "little", signed=True)


def _functions(elf: ELFFile) -> tuple[dict[Function, bytes], dict[Function, str]]:
    code, names = {}, {}
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        if symbol["st_info"]["type"] == "STT_FUNC":
            section = elf.get_section(symbol["st_shndx"])
            function = (section.name, symbol["st_value"])
            code[function] = section.data()[symbol["st_value"] : symbol["st_value"] + symbol["st_size"]]
            names[function] = symbol.name
    return code, names


def _calls(elf: ELFFile, code: dict[Function, bytes]) -> dict[Function, set[Function]]:
    """Who calls whom, or has a helper call it: by relocations, and within a section by distance."""
    calls: dict[Function, set[Function]] = defaultdict(set)
    starts: dict[str, list[int]] = defaultdict(list)
    for section, start in sorted(code):
        starts[section].append(start)
    moved: dict[tuple[str, int], tuple[str, int]] = {}
    of_kernel: set[tuple[str, int]] = set()
    symbols = elf.get_section_by_name(".symtab")
    for section in elf.iter_sections():
        if isinstance(section, RelocationSection):
            name = section.name.removeprefix(".rel")
            for relocation in section.iter_relocations():
                symbol = symbols.get_symbol(relocation["r_info_sym"])
                if symbol["st_info"]["type"] in ("STT_FUNC", "STT_SECTION") and isinstance(symbol["st_shndx"], int):
                    moved[name, relocation["r_offset"]] = elf.get_section(symbol["st_shndx"]).name, symbol["st_value"]
                elif symbol["st_shndx"] == "SHN_UNDEF":
                    of_kernel.add((name, relocation["r_offset"]))
    for (section, start), text in code.items():
        for at in range(0, len(text), 8):
            is_call = text[at] == CALL and text[at + 1] >> 4 == CALLED_HERE and (section, start + at) not in of_kernel
            where = moved.get((section, start + at))
            if is_call:
                step = (_immediate(text, at) + 1) * 8
                callee = (where[0], where[1] + step) if where else (section, start + at + step)
            elif text[at] == LOAD_ADDRESS and where is not None and where[0] in starts:
                callee = where[0], where[1] + _immediate(text, at)
            else:
                continue
            begins = starts[callee[0]]
            calls[section, start].add((callee[0], begins[bisect.bisect_right(begins, callee[1]) - 1]))
    return calls


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: p.name)
def test_every_chain_of_functions_fits_on_the_stack_of_older_kernels(path: Path) -> None:
    with path.open("rb") as f:
        elf = ELFFile(f)
        code, names = _functions(elf)
        calls = _calls(elf, code)

    def deepest(function: Function) -> int:
        return _depth(code[function]) + max(map(deepest, calls[function]), default=0)

    assert any(calls.values())
    assert {n: d for f, n in names.items() if (d := deepest(f)) > STACK_BYTES} == {}
