"""What words stand at these addresses of a process? Read together where they are close, as a library's variables are."""

from __future__ import annotations

from typing import Any

from ....sandbox.memory import Memory, MemoryFault

_WORD = 8
_WINDOW = 64 << 10


def read_words(memory: Memory, addresses: Any) -> Any:
    """Return the 64-bit numbers at sorted addresses, 0 where nothing can be read."""
    import numpy as np

    values = np.zeros(len(addresses), np.uint64)
    at = 0
    while at < len(addresses):
        start = int(addresses[at])
        following = int(np.searchsorted(addresses, start + _WINDOW))
        try:
            data = np.frombuffer(memory.read(start, int(addresses[following - 1]) - start + _WORD), np.uint8)
        except MemoryFault:
            values[at:following] = [_word(memory, int(address)) for address in addresses[at:following]]
        else:
            places = addresses[at:following] - start
            values[at:following] = data[places[:, None] + np.arange(_WORD)].view("<u8")[:, 0]
        at = following
    return values


def _word(memory: Memory, address: int) -> int:
    try:
        return int.from_bytes(memory.read(address, _WORD), "little")
    except MemoryFault:
        return 0
