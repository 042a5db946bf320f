"""Do objects for older kernels hold only what those take? Kernels before 5.12 refuse atomic steps that say what was there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import otel_gpu.bpf

OBJECTS = sorted((Path(otel_gpu.bpf.__file__).parent / "objects").glob("*_before_5_17.*.bpf.o"))
# Documentation/bpf/standardization/instruction-set.rst: stores whose mode is ATOMIC, of four and of eight bytes.
ATOMIC = (0xC3, 0xDB)
LOAD_OF_TWO = 0x18
PLAIN_ADDITION = 0


def _atomics(path: Path) -> Iterator[tuple[str, int]]:
    with open(path, "rb") as file:
        for section in ELFFile(file).iter_sections():
            if section["sh_type"] != "SHT_PROGBITS" or not section["sh_flags"] & 4:
                continue
            code, at = section.data(), 0
            while at < len(code):
                if code[at] in ATOMIC:
                    yield section.name, int.from_bytes(code[at + 4 : at + 8], "little")
                at += 16 if code[at] == LOAD_OF_TWO else 8


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: p.name)
def test_what_older_kernels_load_adds_and_nothing_else(path: Path) -> None:
    found = list(_atomics(path))

    assert found
    assert {operation for _, operation in found} == {PLAIN_ADDITION}
