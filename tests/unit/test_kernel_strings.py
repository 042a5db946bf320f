"""Only what is a kernel of the library is read as a name."""

from __future__ import annotations

import pytest

from otel_gpu.process.memory import MemoryFault
from otel_gpu.symbols.kernel_strings import KernelStrings

START = 0x7000
TEXT = b"\0alpha\0alp\0beta"


class Library:
    """Stands in for a process: one small library, and nothing behind it."""

    pid = 1

    def __init__(self) -> None:
        self.reads = 0

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        at = address - START
        if not 0 <= at <= at + size <= len(TEXT):
            raise MemoryFault(f"nothing at {address:#x}")
        return TEXT[at : at + size]


@pytest.fixture
def memory() -> Library:
    return Library()


@pytest.fixture
def strings(memory: Library) -> KernelStrings:
    return KernelStrings(memory, (START, START + len(TEXT)), ["alpha", "beta"])


def test_a_pointer_to_a_kernels_name_is_that_kernel(strings: KernelStrings) -> None:
    assert strings.at(START + 1) == "alpha"


def test_other_strings_and_parts_of_names_are_no_names(strings: KernelStrings) -> None:
    assert [strings.at(START + at) for at in (0, 2, 7)] == [None, None, None]


def test_a_name_must_end_within_the_library(strings: KernelStrings) -> None:
    assert strings.at(START + 11) is None


def test_addresses_outside_are_not_read(strings: KernelStrings, memory: Library) -> None:
    assert [strings.at(address) for address in (0, START - 1, START + len(TEXT), 1 << 63)] == [None] * 4
    assert memory.reads == 0


def test_an_address_is_read_once(strings: KernelStrings, memory: Library) -> None:
    assert strings.at(START + 1) == strings.at(START + 1)
    assert memory.reads == 1


def test_what_cannot_be_read_is_no_name() -> None:
    assert KernelStrings(Library(), (START, START + 4096), ["alpha"]).at(START + 1) is None
