"""Which kernel was a handle when it was launched? Drivers give handles out again once their module is unloaded.

The kernel's programs count launches under a handle's generation, which is a new one each time the handle gets another
name (ebpf/generations.bpf.h). Here each kernel that a handle ever was has a key of its own: the handle itself, for the
first, or the handle with the generation, plus 1, above it. Keys are what names are kept by. Where the record of a new generation
was dropped, what was counted from then on has a key without a name: an old one could be wrong.
"""

from __future__ import annotations

from collections import defaultdict

from ..symbols.kernels import Program

_HANDLE_BITS = 64
_HANDLE = (1 << _HANDLE_BITS) - 1
_GENERATIONS = 1 << 16
_SLOTS = 1 << 16
_OTHER = 1 << 16
"""Set beside the generation, in ebpf/abi.h's KERNEL_NOW, when the handle was another kernel before."""
_MAX_DROPPED = 64
"""Generations of one slot that are remembered as dropped."""


class KernelHandles:
    """The handles that have been several kernels."""

    def __init__(self) -> None:
        self._keys: dict[Program, dict[int, list[tuple[int, int]]]] = defaultdict(dict)
        """By handle: from which generation on it has had which key; the latest last."""
        self._settled: dict[tuple[Program, int], int] = {}
        """How many of these were there when the counts were last read."""
        self._latest: dict[int, int] = {}
        """By slot, which handles share: the generation that was told last."""
        self._dropped: dict[int, list[int]] = defaultdict(list)
        """By slot: generations that nobody told of."""

    def named(self, program: Program, handle: int, now: int) -> int:
        """Return the key of the kernel that a handle is from now on; `now` is KERNEL_NOW."""
        generation, slot = now % _GENERATIONS, slot_of(handle)
        self._note(slot, generation, is_new=bool(now & _OTHER))
        if now & _OTHER or self.key(program, handle, generation) == _unknown(handle, generation):
            # Handles may share generations, so the first began at any; half of all are taken to be before the second.
            first = ((generation + _GENERATIONS // 2) % _GENERATIONS, handle)
            keys = self._keys[program].setdefault(handle, [first])
            keys.append((generation, _unknown(handle, generation)))
        return self.key(program, handle, generation)

    def key(self, program: Program, handle: int, generation: int | None = None) -> int:
        """Return the key of what a handle is, or was at a generation."""
        slot = slot_of(handle)
        latest = self._latest.get(slot, 0)
        if generation is None:
            generation = latest
        if 0 < (generation - latest) % _GENERATIONS < _GENERATIONS // 2:
            return _unknown(handle, generation)
        if slot not in self._latest:
            return handle
        keys = self._keys[program].get(handle) or [((generation + _GENERATIONS // 2) % _GENERATIONS, handle)]
        since, key = next(
            (known for known in reversed(keys) if (generation - known[0]) % _GENERATIONS <= _GENERATIONS // 2), keys[0]
        )
        age = (generation - since) % _GENERATIONS
        if any(0 < (dropped - since) % _GENERATIONS <= age for dropped in self._dropped.get(slot, ())):
            return _unknown(handle, generation)
        return key

    def settle(self) -> None:
        """Forget what nothing is counted under any more: what ended before the last time this was called."""
        for program, handles in self._keys.items():
            for handle, keys in handles.items():
                del keys[: self._settled.get((program, handle), 1) - 1]
                self._settled[program, handle] = len(keys)

    def forget(self, program: Program) -> None:
        """Drop a program that has ended."""
        for handle in self._keys.pop(program, ()):
            self._settled.pop((program, handle), None)

    def _note(self, slot: int, generation: int, *, is_new: bool) -> None:
        latest = self._latest.get(slot, 0)
        untold = (generation - latest) % _GENERATIONS - is_new
        if 0 < untold < _GENERATIONS // 2:
            dropped = self._dropped[slot]
            dropped += [(latest + n) % _GENERATIONS for n in range(1, min(untold, _MAX_DROPPED) + 1)]
            del dropped[:-_MAX_DROPPED]
        if is_new or untold > 0:
            self._latest[slot] = generation


def slot_of(handle: int) -> int:
    """Return which handles share their generations, as generation_at() in ebpf/generations.bpf.h has it."""
    return (handle >> 4 ^ handle >> 20) % _SLOTS


def handle_of(key: int) -> int:
    """Return the handle that a key is of."""
    return key & _HANDLE


def _unknown(handle: int, generation: int) -> int:
    return handle | (generation + 1) << _HANDLE_BITS
