from __future__ import annotations

import ctypes.util
import os
import shutil
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gpu.bpf.abi.unwinding import UNWIND_ROW, RowKind
from otel_gpu.errors import ElfError, OtelGpuError
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.stacks.eh_frame.cfa_expression import is_at_rbp, recognise
from otel_gpu.stacks.eh_frame.rows import RBP_AT_RBP, UnwindError, UnwindTable, deref_offset
from otel_gpu.stacks.eh_frame.tables import compile_table
from tests.readelf_frames import compare

CODE, FRAME = 0x1000, 0x100000
CODE_SIZE = 0x10000
LEAF = bytes([0x0C, 7, 8, 0x90, 1])
"""CIE program: CFA = rsp + 8, return address at CFA - 8."""


def cie(program: bytes = LEAF, augmentation: bytes = b"zR", data: bytes = b"\x1b") -> bytes:
    body = struct.pack("<IB", 0, 1) + augmentation + b"\0" + bytes([1, 0x78, 16])
    body += bytes([len(data)]) + data + program
    return struct.pack("<I", len(body)) + body


def section(*functions: tuple[int, int, bytes], head: bytes | None = None) -> bytes:
    """Make an .eh_frame of one CIE and functions of (start, size, program)."""
    out = cie() if head is None else head
    for start, size, program in functions:
        at = len(out)
        body = struct.pack("<IiIB", at + 4, start - (FRAME + at + 8), size, 0) + program
        out += struct.pack("<I", len(body)) + body
    return out + b"\0\0\0\0"


def image(eh_frame: bytes, machine: int = 62) -> bytes:
    """Wrap an .eh_frame in the smallest ELF file with one code and one data segment."""
    names = b"\0.eh_frame\0.shstrtab\0"
    offset = 64 + 2 * 56
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, machine, 1, 0, 64, offset, 0, 64, 56, 2, 64, 3, 2)
    begin = offset + 3 * 64
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, CODE, CODE, 0, CODE_SIZE, 1)
    segments += struct.pack("<IIQQQQQQ", 1, 4, begin, FRAME, FRAME, len(eh_frame), len(eh_frame), 1)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 2, FRAME, begin, len(eh_frame), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 11, 3, 0, 0, begin + len(eh_frame), len(names), 0, 0, 1, 0)
    return header + segments + sections + eh_frame + names


def table_of(*functions: tuple[int, int, bytes], head: bytes | None = None) -> UnwindTable:
    return compile_table(ElfFile.from_bytes(image(section(*functions, head=head))))


def rules(table: UnwindTable) -> list[tuple[int, str, int, int]]:
    return [
        (int(pc) + CODE, RowKind(kind).name, int(cfa), int(rbp))
        for pc, cfa, kind, rbp in table.rows[["pc", "cfa_offset", "kind", "fp_offset"]].tolist()
    ]


def test_a_row_is_eight_bytes_in_the_kernels_order() -> None:
    row = np.array([(0x01020304, -2, RowKind.FP, -3)], UNWIND_ROW)

    assert row.tobytes() == bytes([4, 3, 2, 1, 0xFE, 0xFF, 2, 0xFD])


def test_a_prologue_becomes_one_row_per_change() -> None:
    # push rbp; mov rsp, rbp; ...; leave; ret
    program = bytes([0x41, 0x0E, 16, 0x86, 2, 0x43, 0x0D, 6, 0x60, 0x0C, 7, 8, 0xC6])

    assert rules(table_of((CODE, 0x40, program))) == [
        (CODE, "SP", 8, 0),
        (CODE + 1, "SP", 16, -2),
        (CODE + 4, "FP", 16, -2),
        (CODE + 0x24, "SP", 8, 0),
        (CODE + 0x40, "END", 0, 0),
    ]


def test_remembered_rules_come_back_through_nested_and_repeated_restores() -> None:
    program = bytes([0x41, 0x0E, 16, 0x0A, 0x41, 0x0E, 24, 0x0A, 0x41, 0x0E, 32, 0x41, 0x0B, 0x41, 0x0B])
    program += bytes([0x0A, 0x41, 0x0E, 8, 0x41, 0x0B])

    assert [(pc - CODE, cfa) for pc, _kind, cfa, _rbp in rules(table_of((CODE, 64, program)))[:-1]] == [
        (0, 8),
        (1, 16),
        (2, 24),
        (3, 32),
        (4, 24),
        (5, 16),
        (6, 8),
        (7, 16),
    ]


def test_advances_of_every_width_move_the_pc() -> None:
    program = bytes([0x02, 0x80, 0x0E, 16, 0x03, 0x00, 0x01, 0x0E, 24, 0x04, 0x00, 0x10, 0, 0, 0x0E, 32])

    assert [pc - CODE for pc, *_ in rules(table_of((CODE, 0x8000, program)))] == [0, 0x80, 0x180, 0x1180, 0x8000]


def test_padding_between_functions_costs_no_row_and_a_hole_ends_the_rules() -> None:
    table = table_of((CODE, 0x1A, b""), (CODE + 0x20, 0x10, b""), (CODE + 0x40, 0x10, b""))

    assert rules(table) == [
        (CODE, "SP", 8, 0),
        (CODE + 0x30, "END", 0, 0),
        (CODE + 0x40, "SP", 8, 0),
        (CODE + 0x50, "END", 0, 0),
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (CODE + 0x110, [(CODE + 0x110, "OUTERMOST"), (CODE + 0x150, "END")]),  # in a hole
        (CODE + 0x1F0, [(CODE + 0x1F0, "OUTERMOST")]),  # the next function ends it
        (CODE + 0x300, [(CODE + 0x300, "OUTERMOST"), (CODE + 0x340, "END")]),  # behind all of them
        (CODE + 0x48, []),  # it has rules
        (0, []),
        (CODE + CODE_SIZE, []),  # outside the code
    ],
)
def test_an_entry_point_without_rules_is_the_outermost_frame(entry: int, expected: list[tuple[int, str]]) -> None:
    raw = bytearray(image(section((CODE + 0x40, 0x10, b""), (CODE + 0x200, 0x10, b""))))
    plain = compile_table(ElfFile.from_bytes(bytes(raw)))
    struct.pack_into("<Q", raw, 24, entry)
    table = compile_table(ElfFile.from_bytes(bytes(raw)))

    assert [r[:2] for r in rules(table) if r not in rules(plain)] == expected
    if expected:
        assert table.find(entry - CODE)["kind"] == RowKind.OUTERMOST


def test_functions_in_any_order_are_sorted() -> None:
    table = table_of((CODE + 0x100, 16, bytes([0x0E, 24])), (CODE, 16, bytes([0x0E, 16])))

    assert [cfa for _pc, kind, cfa, _rbp in rules(table) if kind == "SP"] == [16, 24]


def test_an_undefined_return_address_is_the_outermost_frame() -> None:
    assert rules(table_of((CODE, 16, bytes([0x07, 16]))))[0] == (CODE, "OUTERMOST", 0, 0)


def test_a_signal_frame_is_marked_whatever_its_rules() -> None:
    head = cie(augmentation=b"zRS")

    assert rules(table_of((CODE, 16, bytes([0x0F, 3, 0x77, 0xA0, 1, 0x41, 0x0E, 16])), head=head))[:2] == [
        (CODE, "SIGNAL", 0, 0),
        (CODE + 16, "END", 0, 0),
    ]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("77 08 80 00 3f 1a 3b 2a 33 24 22", (RowKind.PLT, 11)),
        ("77 08 80 00 3f 1a 39 2a 33 24 22", (RowKind.PLT, 9)),
        ("76 78 06", (RowKind.DEREF_FP, deref_offset(-8, 0))),
        ("77 28 06 23 08", (RowKind.DEREF_SP, deref_offset(40, 8))),
        ("77 a0 04 06 23 08", (RowKind.DEREF_SP, deref_offset(544, 8))),
        ("77 04 06", (RowKind.UNSUPPORTED, 0)),
        ("77 08 79 00 38 1e 22 06 23 08", (RowKind.UNSUPPORTED, 0)),
        ("77 88", (RowKind.UNSUPPORTED, 0)),
        ("", (RowKind.UNSUPPORTED, 0)),
    ],
)
def test_expressions_are_recognised(expression: str, expected: tuple[RowKind, int]) -> None:
    assert recognise(bytes.fromhex(expression)) == expected


def test_a_realigned_stack_finds_its_frame_pointer_where_rbp_points() -> None:
    program = bytes.fromhex("10 06 02 76 00 41 0f 03 76 78 06")

    table = table_of((CODE, 64, program))

    assert is_at_rbp(bytes.fromhex("76 00"))
    assert rules(table)[1] == (CODE + 1, "DEREF_FP", deref_offset(-8, 0), RBP_AT_RBP)


@pytest.mark.parametrize("offset", [-16384, -8, 0, 544, 16376])
def test_deref_offsets_unpack_by_an_arithmetic_shift(offset: int) -> None:
    packed = deref_offset(offset, 8)

    assert packed is not None
    assert (8 * (packed >> 4), 8 * (packed & 15)) == (offset, 8)
    assert -32768 <= packed < 32768


def test_big_frames_are_counted_in_words() -> None:
    # def_cfa_offset 65,544
    assert rules(table_of((CODE, 16, bytes([0x0E, 0x88, 0x80, 0x04]))))[0] == (CODE, "SP_LARGE", 8193, 0)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(bytes([0x0D, 3]), id="CFA from rbx"),
        pytest.param(bytes([0x09, 16, 1]), id="return address in a register"),
        pytest.param(bytes([0x09, 6, 9]), id="rbp in a register"),
        pytest.param(bytes([0x0E, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), id="absurd offset"),
        pytest.param(bytes([0x86, 0x90, 0x4E]), id="rbp too far away"),
    ],
)
def test_rules_that_rows_cannot_say_stop_the_walk(program: bytes) -> None:
    assert rules(table_of((CODE, 16, program)))[0] == (CODE, "UNSUPPORTED", 0, 0)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(bytes([0x0E, 0x80]), id="truncated number"),
        pytest.param(bytes([0x0B]), id="restore without remember"),
        pytest.param(bytes([0x3B]), id="unknown instruction"),
        pytest.param(bytes([0x0F, 0x7F, 1]), id="expression beyond the end"),
        pytest.param(bytes([0x04, 1, 2]), id="truncated advance"),
        pytest.param(bytes([0x01, 1, 2, 3, 4]), id="set_loc"),
    ],
)
def test_a_malformed_program_is_counted_and_harms_no_other(program: bytes) -> None:
    table = table_of((CODE, 16, program), (CODE + 16, 16, bytes([0x0E, 24])))

    assert table.skipped == {"its program is malformed": 1}
    assert table.functions == 1
    assert rules(table)[:2] == [(CODE, "UNSUPPORTED", 0, 0), (CODE + 16, "SP", 24, 0)]


def test_a_restore_does_not_reach_into_the_function_before() -> None:
    table = table_of((CODE, 16, bytes([0x0E, 16, 0x0A])), (CODE + 16, 16, bytes([0x0B])))

    assert table.skipped == {"its program is malformed": 1}


def test_overlapping_functions_are_cut_where_the_next_begins() -> None:
    table = table_of((CODE, 64, bytes([0x0E, 16])), (CODE + 32, 16, bytes([0x0E, 24])))

    assert table.skipped == {"it overlaps another": 1}
    assert rules(table) == [
        (CODE, "SP", 16, 0),
        (CODE + 32, "SP", 24, 0),
        (CODE + 48, "END", 0, 0),
    ]


@pytest.mark.parametrize(("start", "size"), [(0, 16), (CODE - 8, 16), (CODE, CODE_SIZE + 1), (FRAME, 4), (CODE, 0)])
def test_functions_outside_the_code_are_refused(start: int, size: int) -> None:
    table = table_of((start, size, b""))

    assert not table.rows.size
    assert table.skipped == {"it describes no code of this file": 1}


def test_a_cie_that_is_none_is_counted() -> None:
    body = struct.pack("<IiIB", 0x7FFFFFF0, 0, 16, 0)

    table = compile_table(ElfFile.from_bytes(image(struct.pack("<I", len(body)) + body)))

    assert table.skipped == {"its CIE cannot be read": 1}


def test_other_machines_and_files_without_eh_frame_are_refused() -> None:
    with pytest.raises(UnwindError, match="x86-64 only"):
        compile_table(ElfFile.from_bytes(image(section(), machine=183)))
    with pytest.raises(UnwindError, match=r"no \.eh_frame"):
        compile_table(ElfFile.from_bytes(image(section()).replace(b".eh_frame", b".eh_fromm")))


def test_a_long_hostile_chain_of_restores_ends_soon() -> None:
    program = bytes([0x0A]) + bytes([0x0B, 0x0A, 0x41]) * 60_000
    started = time.thread_time()

    table = table_of((CODE, CODE_SIZE, program))

    assert table.functions == 1
    assert time.thread_time() - started < 2


def test_a_section_of_terminators_ends_soon() -> None:
    started = time.thread_time()

    table = compile_table(ElfFile.from_bytes(image(bytes(8 << 20))))

    assert not table.rows.size
    assert time.thread_time() - started < 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 0x100), st.integers(0, 0x60), st.binary(max_size=40)), max_size=8))
def test_any_programs_give_a_sorted_table_without_equal_neighbours(functions: list[tuple[int, int, bytes]]) -> None:
    table = table_of(*[(CODE + start, size, program) for start, size, program in functions])

    assert (np.diff(table.rows["pc"].astype(np.int64)) > 0).all()
    rule = table.rows.view("<u8") >> np.uint64(32)
    assert (rule[1:] != rule[:-1]).all()
    assert (table.rows["kind"] <= max(RowKind)).all()
    assert not table.rows.size or table.rows["kind"][-1] == RowKind.END


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_sections_never_break_the_compiler(data: st.DataObject) -> None:
    good = section((CODE, 64, bytes([0x41, 0x0E, 16, 0x0A, 0x44, 0x0B])), (CODE + 64, 32, bytes.fromhex("0f03767806")))
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = good[:at] + data.draw(st.binary(max_size=12)) + good[at + data.draw(st.integers(0, 12)) :]

    try:
        compile_table(ElfFile.from_bytes(image(damaged)))
    except OtelGpuError:
        pass


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_break_the_compiler(eh_frame: bytes) -> None:
    try:
        compile_table(ElfFile.from_bytes(image(eh_frame)))
    except OtelGpuError:
        pass


def test_the_table_finds_the_row_of_an_address() -> None:
    table = table_of((CODE + 8, 24, bytes([0x44, 0x0E, 16])))

    first = int(table.rows["pc"][0])
    assert table.find(first - 1) is None
    assert int(table.find(first + 4)["cfa_offset"]) == 16  # type: ignore[index]
    assert table.find(first + 24) is None


def test_the_vdso_compiles_from_memory() -> None:
    with open("/proc/self/maps") as maps:
        line = next((line for line in maps if line.rstrip().endswith("[vdso]")), None)
    if line is None:
        pytest.skip("this kernel maps no vDSO")
    start, end = (int(x, 16) for x in line.split()[0].split("-"))
    with open("/proc/self/mem", "rb") as memory:
        memory.seek(start)
        elf = ElfFile.from_bytes(memory.read(end - start), "[vdso]")
    if elf.machine != 62:
        pytest.skip("tables are made for x86-64 only")

    table = compile_table(elf)

    assert table.functions > 3
    assert RowKind.SP in table.kinds()


@pytest.mark.parametrize("name", ["c", "m", "stdc++", "gcc_s"])
def test_rules_equal_readelfs(name: str) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf: install binutils")
    soname = ctypes.util.find_library(name)
    found = [Path(d) / (soname or "") for d in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64")]
    path = next((p for p in found if soname and os.path.exists(p)), None)
    if path is None:
        pytest.skip(f"lib{name} is not installed here")

    with ElfFile(path) as elf:
        if elf.machine != 62:
            pytest.skip("tables are made for x86-64 only")
        number, wrong = compare(elf, compile_table(elf))

    assert number > 50
    assert wrong == []


def test_a_file_that_is_no_elf_is_an_elf_error() -> None:
    with pytest.raises(ElfError):
        ElfFile.from_bytes(b"\x7fELF" + bytes(10))
