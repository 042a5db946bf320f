from __future__ import annotations

import os
import struct
from pathlib import Path

from otel_gpu.probes.sites import SiteRules
from otel_gpu.probes.torch import plan_torch, torch_hooks
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.signals.profiles import CPU, GPU_LAUNCHES, TENSOR_INUSE_SPACE

MALLOC = b"_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator6mallocEPPvamP11CUstream_st"
FREE = b"_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator4freeEPv"
# push rbp; nop; ret; nop; ret: two ways out.
CODE = b"\x55\x90\xc3\x90\xc3"
HEADER, SECTION = 64, struct.Struct("<IIQQQQIIQQ")


def library(path: Path, names: list[bytes]) -> Path:
    """Write an x86-64 library whose functions all have the same code, with nothing but a .symtab."""
    text = CODE * len(names)
    strings = b"\0" + b"".join(n + b"\0" for n in names)
    base = HEADER + 56
    symbols = b"\0" * 24
    at = 1
    for i, name in enumerate(names):
        symbols += struct.pack("<IBBHQQ", at, 0x02, 0, 1, base + i * len(CODE), len(CODE))
        at += len(name) + 1
    section_names = b"\0.text\0.symtab\0.strtab\0"
    parts, offsets = [text, symbols, strings, section_names], []
    where = base
    for part in parts:
        offsets.append(where)
        where += len(part)
    sections = SECTION.pack(*[0] * 10)
    sections += SECTION.pack(1, 1, 6, base, offsets[0], len(text), 0, 0, 1, 0)
    sections += SECTION.pack(7, 2, 0, 0, offsets[1], len(symbols), 3, 0, 8, 24)
    sections += SECTION.pack(15, 3, 0, 0, offsets[2], len(strings), 0, 0, 1, 0)
    sections += SECTION.pack(15, 3, 0, 0, offsets[3], len(section_names), 0, 0, 1, 0)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, where, 0, 64, 56, 1, 64, 5, 4)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, where, where, 0x1000)
    path.write_bytes(header + segment + b"".join(parts) + sections)
    return path


def test_an_allocation_is_seen_at_its_entry_and_at_each_way_out(tmp_path: Path) -> None:
    path = library(tmp_path / "libc10_cuda.so", [b"other", MALLOC, FREE])
    with ElfFile(path) as elf:
        probes = plan_torch(elf, os.fspath(path), torch_hooks([TENSOR_INUSE_SPACE]), SiteRules())

    placed = [(p.program, p.offset - 120) for p in probes if p.offset is not None]
    start = len(CODE)
    assert placed == [
        # Returns come first: an entry without its return would leave a call waiting.
        ("profile_tensor_made", start + 2),
        ("profile_tensor_made", start + 4),
        ("profile_tensor", start),
        ("profile_tensor_free", 2 * start),
    ]
    assert {p.return_program for p in probes} == {None}, "no exception gets past a return probe"


def test_what_is_not_there_has_a_reason(tmp_path: Path) -> None:
    path = library(tmp_path / "libc10_cuda.so", [FREE])
    with ElfFile(path) as elf:
        probes = plan_torch(elf, os.fspath(path), torch_hooks([TENSOR_INUSE_SPACE]), SiteRules())

    missing = [p for p in probes if p.offset is None]
    assert len(missing) == 2
    assert all(p.reason is not None and "stripped" in p.reason for p in missing)


def test_without_single_steps_returns_cannot_be_seen(tmp_path: Path) -> None:
    path = library(tmp_path / "libc10_cuda.so", [MALLOC])
    with ElfFile(path) as elf:
        probes = plan_torch(elf, os.fspath(path), torch_hooks([TENSOR_INUSE_SPACE]), SiteRules(allow_single_step=False))

    assert not any(p.placeable for p in probes)


def test_another_library_has_none_of_it(tmp_path: Path) -> None:
    path = library(tmp_path / "libc.so.6", [MALLOC])
    with ElfFile(path) as elf:
        assert plan_torch(elf, os.fspath(path), torch_hooks([GPU_LAUNCHES, TENSOR_INUSE_SPACE]), SiteRules()) == []


def test_the_allocator_is_left_alone_unless_it_is_needed() -> None:
    assert {hook.library for hook in torch_hooks([CPU, GPU_LAUNCHES])} == {"libtorch_cpu.so"}
    assert {hook.library for hook in torch_hooks([TENSOR_INUSE_SPACE])} == {"libtorch_cpu.so", "libc10_cuda.so"}
