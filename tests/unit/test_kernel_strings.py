"""Only what is a kernel of the library is read as a name."""

from __future__ import annotations

from collections.abc import Sequence

from otel_gpu.receivers.cuda.kernel_names.kernel_strings import kernel_strings

START = 0x7000
TEXT = b"\0alpha\0alp\0beta"
EXTENT = (START, START + len(TEXT))
NAMES = ["alpha", "beta"]


def read(addresses: Sequence[int], end: int, longest: int) -> dict[int, bytes]:
    """Stand in for a process: one small library, and nothing behind it."""
    assert end == EXTENT[1]
    assert longest > len(TEXT)
    assert all(START <= address < end for address in addresses)
    found = {address: TEXT[address - START :].partition(b"\0") for address in addresses}
    return {address: text for address, (text, end, _) in found.items() if end}


def test_a_pointer_to_a_kernels_name_is_that_kernel() -> None:
    assert kernel_strings(read, EXTENT, {START + 1}, NAMES) == {START + 1: "alpha"}


def test_other_strings_and_parts_of_names_are_no_names() -> None:
    assert kernel_strings(read, EXTENT, {START + at for at in (0, 2, 7)}, NAMES) == {}


def test_a_name_must_end_within_the_library() -> None:
    assert kernel_strings(read, EXTENT, {START + 11}, NAMES) == {}


def test_addresses_outside_are_not_read() -> None:
    assert kernel_strings(read, EXTENT, {0, START - 1, START + len(TEXT), 1 << 63}, NAMES) == {}
