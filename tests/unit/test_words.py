"""Are a process's words read rightly, those that are close together and those at the edge of what can be read?"""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.cuda.kernel_names.words import read_words
from otel_gpu.sandbox.memory import MemoryFault

SIZE = 1 << 18
START = 0x7F00_0000_0000
HOLE = (1 << 17, (1 << 17) + 4096)


class Holed:
    """A process's memory with a hole in it, which counts how often it is read."""

    def __init__(self) -> None:
        self.data = np.random.default_rng(3).integers(0, 256, SIZE, np.uint8).tobytes()
        self.reads = 0

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        first, last = address - START, address - START + size
        if not 0 <= first <= last <= SIZE or (first < HOLE[1] and last > HOLE[0]):
            raise MemoryFault("nothing is there")
        return self.data[first:last]


def word(memory: Holed, offset: int) -> int:
    if not 0 <= offset <= SIZE - 8 or (offset < HOLE[1] and offset + 8 > HOLE[0]):
        return 0
    return int(struct.unpack_from("<Q", memory.data, offset)[0])


@given(st.sets(st.integers(-100, SIZE + 100), max_size=50))
def test_words_are_what_stands_there_and_0_where_nothing_does(offsets: set[int]) -> None:
    memory = Holed()
    addresses = np.array(sorted(offsets), np.int64) + START

    assert read_words(memory, addresses).tolist() == [word(memory, offset) for offset in sorted(offsets)]


def test_words_that_are_close_are_read_together() -> None:
    memory = Holed()

    read_words(memory, np.arange(0, 1 << 16, 16) + START)

    assert memory.reads == 1
