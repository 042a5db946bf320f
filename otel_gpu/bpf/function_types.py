"""Which types do the functions of a BPF object's programs have?

A copy of a program is loaded with the same: else the kernel takes its global functions for static ones, and verifies them not
once, but at each call, along every path; and it refuses a program that has one called back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..sandbox.elf import ElfFile
from ..signals.structs import Frozen

_CALL, _LOAD_IMM64 = 0x85, 0x18
_CALLED_HERE, _ADDRESS_OF_FUNCTION = 1, 4
_INSTRUCTION = np.dtype([("code", "u1"), ("registers", "u1"), ("offset", "<i2"), ("immediate", "<i4")])
_FUNCTION = np.dtype([("instruction", "<u4"), ("type", "<u4")])
"""struct bpf_func_info, as every kernel knows it."""
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("at", "<u8"), ("type", "<u4"), ("symbol", "<u4")])
_REL, _EXECUTABLE = 9, 4
"""SHT_REL, SHF_EXECINSTR"""

_Place = tuple[int, int]
"""A section's number, and a byte in it."""


class FunctionTypes(Frozen):
    """The types of a program's functions, in the order in which they stand in it."""

    btf: int
    """The descriptor of the types, which the object holds."""
    functions: np.ndarray
    """One `struct bpf_func_info` each."""


class ObjectFunctions:
    """What an object's file says of its functions (`.BTF.ext`), and of who calls whom (relocations)."""

    def __init__(self, path: Path) -> None:
        with ElfFile(path) as elf:
            self._begins: dict[str, _Place] = {s.name: (s.section, s.value) for s in elf.symbols(".symtab")}
            self._types = dict(_types(elf))
            self._code = {
                number: np.frombuffer(elf.section_data(section), _INSTRUCTION)
                for number, section in enumerate(elf.sections)
                if section.flags & _EXECUTABLE and section.size
            }
            self._relocated = dict(_relocations(elf))

    def types(self, program: str, instructions: bytes, btf: int) -> FunctionTypes | None:
        """Return the types of a program's functions, where these begin in the instructions that it is loaded from.

        libbpf has put behind it, in these, whatever it calls. None where a function has no type.
        """
        code = np.frombuffer(instructions, _INSTRUCTION)
        calls = _calls(code)
        found: dict[int, _Place] = {0: self._begins[program]}
        waiting, starts = [0], sorted({0, *calls.values()})
        while waiting:
            start = waiting.pop()
            end = next((other for other in starts if other > start), len(code))
            for at in range(start, end):
                if (target := calls.get(at)) is not None and target not in found:
                    found[target] = self._callee(found[start], at - start)
                    waiting.append(target)
        if btf < 0 or len(found) != len(starts) or not self._types.keys() >= set(found.values()):
            return None
        rows = [(start, self._types[found[start]]) for start in starts]
        return FunctionTypes(btf, np.array(rows, _FUNCTION))

    def _callee(self, caller: _Place, instruction: int) -> _Place:
        """Return the function that one of a function's instructions calls, or takes the address of."""
        section, begin = caller
        at = begin + instruction * _INSTRUCTION.itemsize
        said = self._code[section][at // _INSTRUCTION.itemsize]
        immediate = int(said["immediate"])
        if said["code"] == _LOAD_IMM64:
            section, base = self._relocated[section, at]
            return section, base + immediate
        section, base = self._relocated.get((section, at), (section, at))
        return section, base + (immediate + 1) * _INSTRUCTION.itemsize


def _calls(code: np.ndarray) -> dict[int, int]:
    """Return which instructions call a function of the program's own, or take its address, and where that begins."""
    source = code["registers"] >> 4
    (at,) = np.nonzero(
        ((code["code"] == _CALL) & (source == _CALLED_HERE))
        | ((code["code"] == _LOAD_IMM64) & (source == _ADDRESS_OF_FUNCTION))
    )
    return dict(zip(at.tolist(), (at + code["immediate"][at] + 1).tolist(), strict=True))


def _types(elf: ElfFile) -> Iterator[tuple[_Place, int]]:
    """Yield where a function begins, and the number of its type."""
    numbers = {section.name: number for number, section in enumerate(elf.sections)}
    names, extended = (elf.section_data(elf.sections[numbers[name]]) for name in (".BTF", ".BTF.ext"))
    strings = struct.unpack_from("<I", names, 4)[0] + struct.unpack_from("<I", names, 16)[0]
    header, begin, size = struct.unpack_from("<4xIII", extended)
    at, end = header + begin, header + begin + size
    (record_bytes,) = struct.unpack_from("<I", extended, at)
    at += 4
    while at < end:
        name, count = struct.unpack_from("<II", extended, at)
        at += 8
        section = names[strings + name : names.index(b"\0", strings + name)].decode()
        for _ in range(count):
            place, number = struct.unpack_from("<II", extended, at)
            yield (numbers[section], place), number
            at += record_bytes


def _relocations(elf: ElfFile) -> Iterator[tuple[_Place, _Place]]:
    """Yield the instructions that are relocated, and what the symbol stands for that each names."""
    table = next(section for section in elf.sections if section.name == ".symtab")
    symbols = np.frombuffer(elf.section_data(table), _SYMBOL)
    for section in elf.sections:
        if section.type != _REL or not elf.sections[section.info].flags & _EXECUTABLE:
            continue
        for at, _, symbol in np.frombuffer(elf.section_data(section), _RELOCATION).tolist():
            yield (section.info, at), (int(symbols["section"][symbol]), int(symbols["value"][symbol]))
