"""Is what is said about the registers at a call certain, on both machines?"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.elf import EM_AARCH64, EM_X86_64, ElfFile
from otel_gpu.symbols.constants import Call, calls
from otel_gpu.symbols.references import find_references

BASE = 0x1000
TABLE = {0x2000: 0x4242}

# call +0: its target is the instruction behind it.
CALL = "e8 00 00 00 00"


def x86(code: str) -> list[Call]:
    return list(calls(EM_X86_64, bytes.fromhex(code.replace(" ", "")), BASE, TABLE.get))


def arm64(*words: int) -> list[Call]:
    return list(calls(EM_AARCH64, struct.pack(f"<{len(words)}I", *words), BASE, TABLE.get))


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
    assert x86(f"{code} {CALL}")[-1].arguments == arguments


def test_a_call_says_where_it_is_and_what_it_calls() -> None:
    (call,) = x86(f"90 {CALL}")

    assert (call.address, call.target) == (BASE + 1, "0x1006")


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
    assert arm64(*words, BL)[-1].arguments == arguments


@given(st.sampled_from([EM_X86_64, EM_AARCH64, 3]), st.binary(max_size=200))
def test_any_code_is_read_without_failing(machine: int, code: bytes) -> None:
    for call in calls(machine, code, BASE, TABLE.get):
        assert len(call.arguments) == 5


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
