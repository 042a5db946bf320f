"""Are addresses in a process turned into a file's own, however the linker put its segments?"""

from __future__ import annotations

import struct

import pytest

from otel_gpu.errors import ElfError
from otel_gpu.sandbox.elf import PF_X, ElfFile

READ = 4


def image(*segments: tuple[int, int, int, int]) -> ElfFile:
    """Make a file with these segments: flags, offset, address, size."""
    headers = b"".join(
        struct.pack("<IIQQQQQQ", 1, fl, off, va, va, size, size, 0x1000) for fl, off, va, size in segments
    )
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0)
    return ElfFile.from_bytes((header + headers).ljust(0x8000, b"\0"))


LLD = image((READ, 0, 0, 0x710), (READ | PF_X, 0x710, 0x1710, 0x200), (READ, 0x910, 0x2910, 0x100))
GNU = image((READ, 0, 0, 0x710), (READ | PF_X, 0x1000, 0x1000, 0x2200), (READ, 0x4000, 0x4000, 0x100))
PRELINKED = image((READ | PF_X, 0, 0x41000000, 0x2000), (READ, 0x2000, 0x41003000, 0x100))
TWO_CODES = image((READ | PF_X, 0, 0, 0x1800), (READ | PF_X, 0x1800, 0x201800, 0x2000))


@pytest.mark.parametrize(
    ("elf", "offset", "vaddr"),
    [
        (LLD, 0, 0x1000),  # the page also holds the end of the segment before
        (GNU, 0x1000, 0x1000),
        (GNU, 0x2000, 0x2000),  # a mapping that was split
        (PRELINKED, 0, 0x41000000),
        (TWO_CODES, 0, 0),
        (TWO_CODES, 0x2000, 0x202000),
        (GNU, 0x4000, 0x4000),  # made executable later
    ],
)
def test_a_mapping_of_code_begins_where_its_segment_is_loaded(elf: ElfFile, offset: int, vaddr: int) -> None:
    assert elf.code_vaddr(offset) == vaddr


def test_a_mapping_of_no_segment_is_an_error() -> None:
    with pytest.raises(ElfError):
        GNU.code_vaddr(0x7000)
