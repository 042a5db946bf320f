"""Layouts must be those of the builds that are known, and refuse every other."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.bpf.abi.unwinding import PY_ABSENT, EntryRule
from otel_gpu.stacks.cpython.layout import (
    DEBUG_OFFSETS_SIZE,
    TssKind,
    UnsupportedPythonError,
    code_checksum,
    layout_for,
)

FINAL = {13: 0x30D00F0, 14: 0x30E0AF0, 15: 0x30F02F0}


def debug_offsets(minor: int, version: int | None = None, free_threaded: int = 0, fill: int = 8) -> bytes:
    words = [fill] * (DEBUG_OFFSETS_SIZE // 8)
    words[1], words[2] = FINAL[minor] if version is None else version, free_threaded
    return b"xdebugpy" + struct.pack(f"<{len(words) - 1}Q", *words[1:])


@pytest.mark.parametrize(
    ("version", "words"),
    [((3, 7), "CPython 3.7 is not known"), ((3, 16), "CPython 3.16 is not known"), ((2, 10), "CPython 2.10")],
)
def test_a_version_that_is_not_known_is_refused(version: tuple[int, int], words: str) -> None:
    with pytest.raises(UnsupportedPythonError, match=words):
        layout_for(version, debug_offsets(13))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (None, "are needed"),
        (b"", "no _Py_DebugOffsets"),
        (b"\0" * DEBUG_OFFSETS_SIZE, "no _Py_DebugOffsets"),
        (debug_offsets(14)[:-8], "no _Py_DebugOffsets"),
        (debug_offsets(14, FINAL[13]), "of another version"),
        (debug_offsets(14, 0x30E00A5), "pre-release"),
        (debug_offsets(14, free_threaded=1), "free-threaded"),
        (debug_offsets(14, fill=1 << 40), "absurd"),
    ],
)
def test_a_description_that_is_not_to_be_trusted_is_refused(raw: bytes | None, words: str) -> None:
    with pytest.raises(UnsupportedPythonError, match=words):
        layout_for((3, 14), raw)


def test_a_release_candidate_has_the_final_layout() -> None:
    assert layout_for((3, 15), debug_offsets(15, 0x30F00C1)).minor == 15


@given(st.integers(13, 15), st.binary(min_size=DEBUG_OFFSETS_SIZE - 24, max_size=DEBUG_OFFSETS_SIZE))
def test_any_description_gives_a_layout_that_fits_its_struct_or_is_refused(minor: int, rest: bytes) -> None:
    head = b"xdebugpy" + struct.pack("<QQ", FINAL[minor], 0)
    try:
        layout = layout_for((3, minor), head + rest)
    except UnsupportedPythonError:
        return
    assert len(layout.pack()) == 80


def test_packing_puts_the_fields_where_the_kernel_reads_them() -> None:
    layout = layout_for((3, 11)).with_tss(TssKind.SLOT, -0x28, 7)

    words = struct.unpack("<HHi35H", layout.pack()[:78])

    assert words[:4] == (11, TssKind.SLOT, -0x28, 7)
    assert words[4:11] == (40, 0, 16, 8, 16, 152, 160)
    assert words[11:15] == (PY_ABSENT, 56, 8, 16)
    assert words[15:21] == (32, 48, 56, 8, 69, 68)
    assert words[21:25] == (EntryRule.IS_ENTRY, 0, 0, 0xB0)
    assert words[25:32] == (8, 184, 168, 56, 64, 48, 72)
    assert words[32:38] == (112, 128, 136, 48, 72, 0)


@pytest.mark.parametrize(
    ("minor", "instr", "lasti"),
    [
        (8, 24, 24),
        (8, 0xFFFFFFFF, -1),
        (10, 12, 24),
        (10, 0xFFFFFFFF, -1),
        (11, 0x1000 + 184 + 6, 6),
        (12, 0x1000 + 192 - 2, -2),
    ],
)
def test_the_instruction_becomes_bytes_from_the_start(minor: int, instr: int, lasti: int) -> None:
    assert layout_for((3, minor)).lasti(0x1000, instr) == lasti


def test_the_checksum_wraps_as_the_kernels_u32_does() -> None:
    assert code_checksum(1, 2, 3, 4) == ((1 * 31 + 2) * 31 + 3) * 31 + 4
    assert code_checksum(1 << 30, 0, 1 << 30, 9) < 1 << 32
