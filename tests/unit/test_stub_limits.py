"""What may a file cost that is made to cost much? Whatever it says, reading it ends soon, and what was left out is told."""

from __future__ import annotations

import struct
import time

import numpy as np
import pytest

from otel_gpu.receivers.cuda.kernel_names import code_bytes, constructors, loaded_pointers, references, stubs
from otel_gpu.receivers.cuda.kernel_names.code_bytes import CodeBytes
from otel_gpu.receivers.cuda.kernel_names.functions import FunctionTable
from otel_gpu.receivers.cuda.kernel_names.loaded_pointers import LoadedPointers
from otel_gpu.receivers.cuda.kernel_names.references import find_references
from otel_gpu.receivers.cuda.kernel_names.registrations import read_strings
from otel_gpu.receivers.cuda.kernel_names.stubs import read_stub_map
from otel_gpu.sandbox.address_spans import Span, Spans
from otel_gpu.sandbox.elf import EM_X86_64, ElfFile

BASE = 0x10000
ET_EXEC, ET_DYN = 2, 3
PT_LOAD, PT_GNU_EH_FRAME = 1, 0x6474E550
LEA_RDI_CODE = b"\x48\x8d\x3d\xf9\xff\xff\xff"  # lea rdi, [rip - 7]: its own address
MOV_R8D_ONES = b"\x41\xb8\xff\xff\xff\xff"


def image(code: bytes, functions: tuple[int, ...] = (0,), kind: int = ET_DYN, vaddr: int = BASE) -> ElfFile:
    """Make a file of code, and of the table that says where its functions begin."""
    table = struct.pack("<BBBBiI", 1, 0x1B, 0x03, 0x3B, 0, len(functions))
    header, at = 64 + 2 * 56, 64 + 2 * 56 + len(code)
    table += b"".join(struct.pack("<ii", start - len(code), 0) for start in functions)
    data = b"\x7fELF\x02\x01\x01" + bytes(9)
    data += struct.pack("<HHIQQQIHHHHHH", kind, EM_X86_64, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    data += struct.pack("<IIQQQQQQ", PT_LOAD, 5, header, vaddr, vaddr, len(code), len(code), 4096)
    data += struct.pack("<IIQQQQQQ", PT_GNU_EH_FRAME, 4, at, vaddr + len(code), 0, len(table), len(table), 4)
    return ElfFile.from_bytes(data + code + table)


@pytest.mark.parametrize(
    "piece",
    [b"\xc3", b"\xff\xd0", b"".join(b"\x81\xc7" + struct.pack("<I", n) + b"\xc3" for n in range(1000))],
    ids=["returns", "calls", "no two blocks alike"],
)
def test_code_that_is_made_to_cost_time_costs_little(piece: bytes) -> None:
    function = (piece * ((1 << 20) // len(piece)))[: (1 << 20) - 32] + LEA_RDI_CODE + MOV_R8D_ONES
    code = function.ljust(1 << 20, b"\x90") * 2
    started = time.thread_time()

    found = read_stub_map(image(code, tuple(range(0, len(code), 1 << 20))))

    assert len(found) == 0
    assert time.thread_time() - started < 20


def test_what_is_left_out_for_its_cost_is_told() -> None:
    code = ((b"\xc3" * ((1 << 20) - 32)) + LEA_RDI_CODE + MOV_R8D_ONES).ljust(1 << 20, b"\x90") * 4

    assert read_stub_map(image(code, tuple(range(0, len(code), 1 << 20)))).skipped == 1


def test_references_beyond_the_limit_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "MAX_REFERENCES", 10)
    code = b"".join(b"\x48\x8d\x3d" + struct.pack("<i", -7 * (n + 1)) for n in range(100))

    sites, found = find_references(image(code), np.array([BASE], np.int64))

    assert (len(sites), set(found.tolist())) == (10, {BASE})


def test_code_is_handed_out_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_bytes, "_MAX_BYTES", 100)
    code = CodeBytes(image(bytes(range(200))))

    assert code.read(BASE + 10, BASE + 60) == bytes(range(10, 60))
    assert code.read(BASE + 60, BASE + 100) == bytes(range(60, 100))
    assert code.read(BASE, BASE + 60) == b""
    assert code.refused == 1


@pytest.mark.parametrize(("start", "end"), [(BASE - 10, BASE), (BASE + 190, BASE + 1210), (1 << 63, (1 << 63) + 1)])
def test_where_there_is_no_code_none_is_read(start: int, end: int) -> None:
    code = CodeBytes(image(bytes(200)))

    assert code.read(start, end) == b""
    assert code.refused == 1


def test_constructors_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constructors, "_MAX_CONSTRUCTORS", 3)
    elf = image((LEA_RDI_CODE + MOV_R8D_ONES + b"\x90" * 3) * 10, tuple(range(0, 160, 16)))

    found, skipped = constructors.find_constructors(elf, FunctionTable(elf), LoadedPointers(elf))

    assert ([c.start - BASE for c in found], skipped) == ([0, 16, 32], 7)
    assert [c.last_site - c.start for c in found] == [7, 7, 7]


def test_a_fifth_argument_far_from_any_stub_is_no_registration() -> None:
    elf = image(b"\x90" * 1000 + MOV_R8D_ONES + b"\x90" * 1000 + LEA_RDI_CODE)

    assert constructors.find_constructors(elf, FunctionTable(elf), LoadedPointers(elf)) == ([], 0)


def test_strings_are_read_as_far_as_they_are_wanted() -> None:
    elf = image(b"short\0" + b"long" * 50 + b"\0" + b"last\0")

    found = dict(read_strings(elf, [BASE, BASE + 6, BASE + 207, BASE + 5000], longest=10))

    assert found == {BASE: b"short", BASE + 6: b"longlonglon", BASE + 207: b"last"}


def test_names_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # push; lea stub; lea name; mov rdx, rcx; mov r8d, -1; call: with two names of 40 bytes.
    monkeypatch.setattr(stubs, "_MAX_NAMES_BYTES", 60)
    text = 200
    code = b""
    for n in range(2):
        at = len(code)
        code += b"\x48\x8d\x35" + struct.pack("<i", -(at + 7))
        code += b"\x48\x8d\x0d" + struct.pack("<i", text + 41 * n - (at + 14))
        code += b"\x48\x89\xca" + MOV_R8D_ONES + b"\xe8" + struct.pack("<i", 0)
    elf = image(code.ljust(text, b"\x90") + (b"a" * 40 + b"\0") + (b"b" * 40 + b"\0"))

    found = read_stub_map(elf)

    assert (found.names, found.skipped) == (("a" * 40,), 1)


def test_addresses_beyond_numbers_are_none() -> None:
    for vaddr in ((1 << 63) - 100, (1 << 64) - 200):
        assert len(read_stub_map(image(LEA_RDI_CODE + MOV_R8D_ONES, vaddr=vaddr))) == 0


def test_spans_hold_what_is_in_one_of_them() -> None:
    spans = Spans([Span(30, 40), Span(10, 20), Span(15, 22), Span(50, 50), Span(60, 1 << 63)])

    assert spans.hold(np.array([9, 10, 21, 22, 30, 39, 40, 50, 70])).tolist() == [
        *(False, True, True, False),
        *(True, True, False, False, False),
    ]
    assert not Spans([]).hold(np.array([0, 5])).any()


def test_packed_relocations_name_addresses_and_runs_of_words() -> None:
    words = np.array([0x1000, 0b1011, 1 | 1 << 63, 0x8000], np.uint64)

    # 0x1000; of the words behind it the first and the third; of the 63 behind those the last.
    assert loaded_pointers._unpacked(words).tolist() == [0x1000, 0x1008, 0x1018, 0x1008 + 63 * 8 + 62 * 8, 0x8000]
    assert loaded_pointers._unpacked(np.array([3], np.uint64)).tolist() == []


def test_a_program_at_a_fixed_address_has_its_pointers_in_place() -> None:
    pointers = LoadedPointers(image(bytes(8) + struct.pack("<Q", BASE), kind=ET_EXEC))

    which, values = pointers.values_at(np.array([BASE + 8, BASE, BASE + 5000], np.int64))

    assert (which.tolist(), values.tolist(), pointers.read(BASE + 8)) == ([0], [BASE], BASE)
