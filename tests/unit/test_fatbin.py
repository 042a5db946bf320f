"""Are the kernels of device code found, and is code that lies about itself harmless?"""

from __future__ import annotations

import struct

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.cuda.kernel_names import fatbin
from otel_gpu.receivers.cuda.kernel_names.fatbin import kernels_of_image

PTX_TEXT = (
    b".version 8.0\n.target sm_90\n.visible .entry _Z4axpyPf(\n.param .u64 p)\n{ ret; }\n.entry scale() { ret; }\n"
)
KERNELS = {"_Z4axpyPf", "scale"}


def cubin(*sections: str) -> bytes:
    names = b"\0.shstrtab\0" + b"".join(s.encode() + b"\0" for s in sections)
    table = 64 + len(names)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, table, 0, 64, 0, 0, 64, len(sections) + 2, 1)
    at = 1
    rows = [struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    rows.append(struct.pack("<IIQQQQIIQQ", at, 3, 0, 0, 64, len(names), 0, 0, 1, 0))
    at += len(".shstrtab") + 1
    for section in sections:
        rows.append(struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, 64, 0, 0, 0, 1, 0))
        at += len(section) + 1
    return header + names + b"".join(rows)


def entry(kind: int, image: bytes, *, compression: str = "", raw_size: int | None = None) -> bytes:
    stored = image
    if compression == "lz4":
        stored = lz4.block.compress(image, store_size=False)
    elif compression == "zstd":
        stored = zstandard.ZstdCompressor().compress(image)
    padded = stored + bytes(-len(stored) % 8)
    size = (len(image) if raw_size is None else raw_size) if compression else 0
    return struct.pack("<HHIQI8xI8xQQQ", kind, 0x101, 64, len(padded), len(stored), 90, 0, 0, size) + padded


def container(*entries: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


CUBIN = cubin(".text._Z4axpyPf", ".nv.constant0._Z4axpyPf", ".text.helper", ".text.scale", ".nv.constant0.scale")


@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
@pytest.mark.parametrize(("kind", "image"), [(1, PTX_TEXT), (2, CUBIN)])
def test_kernels_are_found_in_ptx_and_cubins_however_stored(kind: int, image: bytes, compression: str) -> None:
    code = kernels_of_image(container(entry(kind, image, compression=compression)))

    assert code.kernels == KERNELS
    assert (code.entries, code.unreadable) == (1, 0)


@pytest.mark.parametrize("image", [PTX_TEXT, CUBIN])
def test_a_bare_image_is_read_as_what_it_is(image: bytes) -> None:
    assert kernels_of_image(image).kernels == KERNELS


def test_device_functions_are_no_kernels() -> None:
    assert "helper" not in kernels_of_image(CUBIN).kernels


def test_several_fatbins_and_entries_are_united() -> None:
    first = container(entry(1, b".entry one()"), entry(7, b"unknown kind"))
    second = container(entry(1, b".entry two()", compression="zstd"))

    assert kernels_of_image(first + second).kernels == {"one", "two"}


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_decompression_bomb_is_refused_before_it_unfolds(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatbin, "_MAX_IMAGE", 1 << 16)
    bomb = entry(1, b".entry boom()" + b" " * (1 << 20), compression=compression)
    liar = entry(1, b".entry boom()" + b" " * (1 << 20), compression=compression, raw_size=1 << 10)

    code = kernels_of_image(container(bomb, liar, entry(1, b".entry fine()")))

    assert code.kernels == {"fine"}
    assert code.unreadable == 2


def test_damaged_compressed_code_is_counted() -> None:
    damaged = bytearray(container(entry(1, PTX_TEXT, compression="zstd"), entry(1, PTX_TEXT)))
    damaged[100] ^= 0xFF

    code = kernels_of_image(bytes(damaged))

    assert code.unreadable == 1
    assert code.kernels == KERNELS


def test_names_are_bounded_and_escaped() -> None:
    hostile = cubin(
        ".text.a\x1b[2J", ".nv.constant0.a\x1b[2J", ".text." + "x" * 70_000, ".nv.constant0." + "x" * 70_000
    )

    names = kernels_of_image(hostile).kernels

    assert "a\\x1b[2J" in names
    assert max(map(len, names)) <= 4_096
    assert all(name.isprintable() for name in names)


def test_kernels_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatbin, "MAX_KERNELS", 10)

    code = kernels_of_image(b"".join(b".entry k%d()\n" % n for n in range(25)))

    assert (len(code.kernels), code.dropped) == (10, 15)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_failing(data: bytes) -> None:
    kernels_of_image(data)
    kernels_of_image(struct.pack("<I", 0xBA55ED50) + data)
    kernels_of_image(b"\x7fELF\x02\x01" + data)


@given(st.integers(0, 700), st.integers(0, 255), st.integers(0, 800))
def test_damaged_fatbins_are_read_without_failing(position: int, value: int, length: int) -> None:
    data = bytearray(container(entry(2, CUBIN, compression="lz4"), entry(2, CUBIN), entry(1, PTX_TEXT)))
    data[position % len(data)] = value

    code = kernels_of_image(bytes(data[:length]))

    assert len(code.kernels) <= 50
