"""Is what is said about the registers at a call certain, on both machines?"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.cuda.kernel_names.constants import UNKNOWN, CallReader, CallSite
from otel_gpu.receivers.cuda.kernel_names.references import find_references
from otel_gpu.sandbox.elf import EM_AARCH64, EM_X86_64, ElfFile

BASE = 0x1000
TABLE = {0x2000: 0x4242}

# call +0: its target is the instruction behind it.
CALL = "e8 00 00 00 00"


Arguments = tuple[int | None, ...]


def x86(code: str) -> list[CallSite]:
    return list(CallReader(EM_X86_64, TABLE.get).calls(bytes.fromhex(code.replace(" ", "")), BASE))


def arm64(*words: int) -> list[CallSite]:
    return list(CallReader(EM_AARCH64, TABLE.get).calls(struct.pack(f"<{len(words)}I", *words), BASE))


def arguments_of(call: CallSite) -> Arguments:
    return tuple(map(call.argument, range(5)))


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("48 8d 3d 10 00 00 00", (0x1017, None, None, None, None)),  # lea rdi, [rip + 0x10]
        ("48 8d 35 f0 ff ff ff", (None, 0xFF7, None, None, None)),  # lea rsi, [rip - 0x10]
        ("bf 05 00 00 00", (5, None, None, None, None)),  # mov edi, 5
        ("48 c7 c6 ff ff ff ff", (None, 0xFFFF_FFFF_FFFF_FFFF, None, None, None)),  # mov rsi, -1
        ("41 b8 ff ff ff ff", (None, None, None, None, 0xFFFF_FFFF)),  # mov r8d, -1
        ("41 83 c8 ff", (None, None, None, None, 0xFFFF_FFFF)),  # or r8d, -1
        ("31 ff", (0, None, None, None, None)),  # xor edi, edi
        ("bf 05 00 00 00 48 89 fe", (5, 5, None, None, None)),  # mov edi, 5; mov rsi, rdi
        ("48 8b 3d f9 0f 00 00", (0x4242, None, None, None, None)),  # mov rdi, [rip + 0xff9]: what the loader wrote
        ("48 8b 3d f8 0f 00 00", (None, None, None, None, None)),  # an address nobody knows
        ("bf 05 00 00 00 48 8b 3e", (None, None, None, None, None)),  # mov rdi, [rsi]
        ("bf 05 00 00 00 83 c7 01", (None, None, None, None, None)),  # add edi, 1
        ("bf 05 00 00 00 40 b7 01", (None, None, None, None, None)),  # mov dil, 1 changes a part of it
        ("bf 05 00 00 00 f3 48 ab", (None, None, None, None, None)),  # rep stosq moves rdi on
        ("bf 05 00 00 00 48 a5", (None, None, None, None, None)),  # movsq moves rsi and rdi on
        ("bf 05 00 00 00 eb 00", (None, None, None, None, None)),  # a branch: another path may join
        (f"bf 05 00 00 00 {CALL}", (None, None, None, None, None)),  # a call may change it
    ],
)
def test_x86_registers_hold_what_the_code_certainly_put_there(code: str, arguments: tuple[int | None, ...]) -> None:
    assert arguments_of(x86(f"{code} {CALL}")[-1]) == arguments


@pytest.mark.parametrize(
    ("code", "callee"),
    [
        (CALL, BASE + 6),
        ("ff 15 f9 0f 00 00", 0x4242),  # call [rip + 0xff9]: what the loader wrote
        ("ff 15 f8 0f 00 00", 0x1FFF),  # a slot of which nobody knows what is in it
        ("ff d0", UNKNOWN),  # call rax
    ],
)
def test_a_call_says_where_it_is_and_what_it_calls(code: str, callee: int) -> None:
    (call,) = x86(f"90 {code}")

    assert (call.address, call.callee) == (BASE + 1, callee)


def test_a_callee_whose_address_is_in_a_register_is_known_as_far_as_the_register_is() -> None:
    (call,) = x86("48 8b 05 f9 0f 00 00 ff d0")  # mov rax, [rip + 0xff9]; call rax
    (other,) = arm64(0xB000_0001, 0xF940_0021, 0xD63F_0020)  # adrp x1, 0x2000; ldr x1, [x1]; blr x1

    assert (call.callee, other.callee) == (0x4242, 0x4242)


ADRP_X1 = 0x9000_0001
ADD_X1 = 0x9100_0000 | 0x234 << 10 | 1 << 5 | 1
ADRP_X0_NEXT_PAGE = 0xB000_0000
LDR_X0 = 0xF940_0000
MOV_X3_X2 = 0xAA02_03E3
MOV_X2_5 = 0xD280_00A2
MOV_W4_MINUS_1 = 0x1280_0004
LDP_X0_X1 = 0xA940_07E0
BL = 0x9400_0002
CBZ = 0xB400_0040


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ((ADRP_X1, ADD_X1), (None, 0x1234, None, None, None)),
        ((MOV_X2_5, MOV_X3_X2), (None, None, 5, 5, None)),
        ((MOV_W4_MINUS_1,), (None, None, None, None, 0xFFFF_FFFF)),
        ((ADRP_X0_NEXT_PAGE, LDR_X0), (0x4242, None, None, None, None)),
        ((ADRP_X1, ADD_X1, LDP_X0_X1), (None, None, None, None, None)),
        ((MOV_X2_5, CBZ), (None, None, None, None, None)),
        ((MOV_X2_5, BL), (None, None, None, None, None)),
    ],
)
def test_arm64_registers_hold_what_the_code_certainly_put_there(
    words: tuple[int, ...], arguments: tuple[int | None, ...]
) -> None:
    assert arguments_of(arm64(*words, BL)[-1]) == arguments


@given(st.sampled_from([EM_X86_64, EM_AARCH64, 3]), st.binary(max_size=200))
def test_any_code_is_read_without_failing(machine: int, code: bytes) -> None:
    for call in CallReader(machine, TABLE.get).calls(code, BASE):
        assert len(arguments_of(call)) == 5


# What compilers put together calls from, with operands that differ from one call to the next.
X86_PIECES = [
    "48 8d 3d {d}",
    "48 8d 35 {d}",
    "4c 8d 05 {d}",
    "8d 3d {d}",
    "48 8b 3d {d}",
    "48 8b 05 {d}",
    "bf {d}",
    "be {d}",
    "41 b8 ff ff ff ff",
    "48 c7 c1 {d}",
    "48 b9 {d} {d}",
    "48 89 fe",
    "89 c7",
    "31 ff",
    "6a 00",
    "48 83 ec 08",
    "48 89 05 {d}",
    "c7 05 {d} {d}",
    "80 3d {d} 00",
    "c6 05 {d} 05",
    "83 c7 01",
]
X86_ENDS = ["e8 {d}", "ff 15 {d}", "ff d0", "e9 {d}", "0f 84 {d}", "eb 00", "c3"]
operands = st.integers(0, (1 << 32) - 1).map(lambda n: n.to_bytes(4, "little").hex())
x86_blocks = st.tuples(st.lists(st.sampled_from(X86_PIECES), max_size=4), st.sampled_from(X86_ENDS)).map(
    lambda block: " ".join([*block[0], block[1]])
)


def filled(template: str, data: st.DataObject) -> str:
    while "{d}" in template:
        template = template.replace("{d}", data.draw(operands), 1)
    return template


def told(calls: list[CallSite]) -> list[tuple[int, int, Arguments]]:
    return [(call.address, call.callee, arguments_of(call)) for call in calls]


def each_read_for_the_first_time(machine: int, blocks: list[bytes]) -> list[tuple[int, int, Arguments]]:
    found, at = [], BASE
    for block in blocks:
        found += told(list(CallReader(machine, TABLE.get).calls(block, at)))
        at += len(block)
    return found


@given(st.lists(x86_blocks, min_size=1, max_size=3), st.data())
def test_x86_code_that_is_known_again_says_what_it_would_say_anew(templates: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(templates), min_size=2, max_size=12))
    blocks = [bytes.fromhex(filled(template, data)) for template in chosen]

    again = told(list(CallReader(EM_X86_64, TABLE.get).calls(b"".join(blocks), BASE)))

    assert again == each_read_for_the_first_time(EM_X86_64, blocks)


ADRP, ADR, ADD, LDR = 0x9000_0000, 0x1000_0000, 0x9100_0000, 0xF940_0000


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=4),
    st.lists(st.tuples(st.integers(0, (1 << 21) - 1), st.integers(0, (1 << 12) - 1)), min_size=2, max_size=8),
    st.sampled_from([BL & 0xFC00_0000, 0xD63F_0020, 0x1400_0000, CBZ & 0xFF00_0000]),
)
def test_arm64_code_that_is_known_again_says_what_it_would_say_anew(
    registers: list[tuple[int, int]], operands: list[tuple[int, int]], end: int
) -> None:
    blocks = []
    for page, offset in operands:
        words = []
        for first, second in registers:
            words.append((ADRP, ADR)[first % 2] | (page & 3) << 29 | page >> 2 << 5 | first)
            words.append((ADD, LDR)[second % 2] | offset << 10 | first << 5 | second)
        varying = end | (offset & 0x3FF) << 5 if end in (CBZ & 0xFF00_0000, 0x1400_0000, BL & 0xFC00_0000) else end
        blocks.append(struct.pack(f"<{len(words) + 1}I", *words, varying))

    again = told(list(CallReader(EM_AARCH64, TABLE.get).calls(b"".join(blocks), BASE)))

    assert again == each_read_for_the_first_time(EM_AARCH64, blocks)


def test_what_is_decoded_is_limited_and_what_is_left_out_counted() -> None:
    code = bytes.fromhex(f"48 8d 3d 10 00 00 00 {CALL}".replace(" ", "")) * 1000
    plenty, few = CallReader(EM_X86_64, TABLE.get, 20_000), CallReader(EM_X86_64, TABLE.get, 2_000)

    assert len(list(plenty.calls(code, BASE))) == 1000
    assert plenty.refused == 0
    assert 0 < len(list(few.calls(code, BASE))) < 1000
    assert (few.refused, few.is_spent) == (1, True)


def test_long_straight_code_is_read_to_its_end() -> None:
    (call,) = x86("48 8d 3d 10 00 00 00 " + "90 " * 5000 + CALL)

    assert call.argument(0) == BASE + 0x17
    assert x86("90 " * 5000) == []
    assert x86("90 " * 100 + "06 " + "90 " * 5000 + CALL) == []  # 06 is no instruction


def image(machine: int, code: bytes) -> ElfFile:
    offset = 64 + 56
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, offset, BASE, BASE, len(code), len(code), 4096)
    return ElfFile.from_bytes(header + segment + code)


NOP = 0xD503_201F
ADD_X2_FROM_X1 = 0x9100_0000 | 0x10 << 10 | 1 << 5 | 2


@pytest.mark.parametrize(
    ("words", "loads", "target"),
    [
        ((NOP, ADRP_X1, NOP, ADD_X1), False, 0x1234),
        ((NOP, ADRP_X1, ADD_X1, ADD_X2_FROM_X1), False, 0x1244),
        ((NOP, ADRP_X0_NEXT_PAGE, LDR_X0), True, 0x2000),
    ],
)
def test_arm64_references_are_put_together_from_their_parts(words: tuple[int, ...], loads: bool, target: int) -> None:
    elf = image(EM_AARCH64, struct.pack(f"<{len(words)}I", *words))

    sites, found = find_references(elf, np.array([target], np.int64), loads=loads)

    assert (sites.tolist(), found.tolist()) == ([BASE + 4], [target])


@pytest.mark.parametrize(
    ("code", "loads", "target"),
    [("90 48 8d 3d 10 00 00 00", False, 0x1018), ("90 4c 8b 05 10 00 00 00", True, 0x1018)],
)
def test_x86_references_are_relative_to_the_next_instruction(code: str, loads: bool, target: int) -> None:
    elf = image(EM_X86_64, bytes.fromhex(code.replace(" ", "")))

    sites, found = find_references(elf, np.array([target], np.int64), loads=loads)
    other, _ = find_references(elf, np.array([target], np.int64), loads=not loads)

    assert (sites.tolist(), found.tolist(), other.tolist()) == ([BASE + 1], [target], [])
