"""Where does memory lie that copies read and write? The kernel's tables of ranges, as far as the kernel cannot keep them itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...bpf.abi.memory import PINNED_KEY, RANGE_KEY
from ...bpf.abi.programs import Table
from ...bpf.abi.rows import KIND_HIP, MemoryType
from ...bpf.maps import BpfMap

_PINNED = (MemoryType.HOST, MemoryType.REGISTERED)
_PROGRAM_BITS = 64
_ADDRESS_BITS = 64
_MAX_BLOCKS = 96


class Ranges:
    """Page-locked memory of the host, in a trie of aligned blocks; memory of devices, an entry a range."""

    def __init__(self, pinned: BpfMap, ranges: BpfMap) -> None:
        self._pinned = pinned
        self._ranges = ranges

    def forget(self, keys: npt.NDArray[np.void], allocations: npt.NDArray[np.void]) -> dict[Table, int]:
        """Take out where allocations lay, LIVE_KEY and LIVE of each, and return how many entries of each table that were."""
        is_pinned = np.isin(allocations["type"] & ~np.uint8(KIND_HIP), _PINNED)
        pinned = pinned_keys(keys[is_pinned], allocations[is_pinned])
        ranges = range_keys(keys[~is_pinned], allocations[~is_pinned])
        return {Table.PINNED: self._pinned.delete_many(pinned), Table.RANGES: self._ranges.delete_many(ranges)}


def range_keys(keys: npt.NDArray[np.void], allocations: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return the keys of ranges, as ebpf/cuda/ranges.bpf.h makes them."""
    is_there = allocations["size"] > 0
    keys, size = keys[is_there], allocations["size"][is_there].astype(np.uint64)
    address = keys["address"].astype(np.uint64)
    level = np.where(size > 1, _log2(size - np.uint64(1)) + 1, 0).astype(np.uint64)
    found = np.zeros(len(keys), RANGE_KEY)
    found["tgid"], found["exec_id"] = keys["tgid"], keys["exec_id"]
    found["block"], found["level"] = address >> level, level
    found["ends_beyond"] = (address + size - np.uint64(1)) >> level != address >> level
    return found


def pinned_keys(keys: npt.NDArray[np.void], allocations: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return the keys of blocks, as ebpf/cuda/pinned.bpf.h cuts ranges: the largest at the start, again and again."""
    address = keys["address"].astype(np.uint64)
    end = address + allocations["size"].astype(np.uint64)
    found = []
    for _ in range(_MAX_BLOCKS):
        goes_on = (address < end) & (address != 0)
        if not goes_on.any():
            break
        keys, address, end = keys[goes_on], address[goes_on], end[goes_on]
        shift = np.minimum(_log2(end - address), _log2(address & -address))
        block = np.zeros(len(keys), PINNED_KEY)
        block["bits"] = _PROGRAM_BITS + _ADDRESS_BITS - shift
        block["tgid"], block["exec_id"] = keys["tgid"], keys["exec_id"]
        block["address"][:, 0], block["address"][:, 1] = address >> np.uint64(32), address & np.uint64(0xFFFFFFFF)
        found.append(block)
        address = address + (np.uint64(1) << shift.astype(np.uint64))
    # Joined arrays have the machine's byte order.
    return np.concatenate(found).astype(PINNED_KEY) if found else np.zeros(0, PINNED_KEY)


def _log2(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return floor(log2) of what is no larger than memory, which a double holds exactly; anything for 0."""
    exponent: npt.NDArray[np.int64] = np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1
    return exponent
