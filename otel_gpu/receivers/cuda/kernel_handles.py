"""Which kernel was a handle when it was launched? Drivers give handles out again once their module is unloaded.

The kernel's programs count launches under a handle's generation, which is a new one each time the handle gets another
name (ebpf/cuda/generations.bpf.h). Each kernel that a handle ever was has a key of its own here, which is what names are kept by:
the handle itself, for the first, or the handle with the generation, plus 1, above it. Where the record of a new generation
was dropped, its key has no name: an old one would be wrong.
"""

from __future__ import annotations

from collections import defaultdict

from ...bpf.abi.events import KERNEL_FORGOTTEN
from ...discovery.program_id import ProgramId

_HANDLE_BITS = 64
_HANDLE = (1 << _HANDLE_BITS) - 1
_GENERATIONS = 1 << 16


class KernelHandles:
    """The handles that have been several kernels."""

    def __init__(self) -> None:
        self._latest: dict[ProgramId, dict[int, int]] = defaultdict(dict)
        """The generation of each that was told last."""

    def named(self, program: ProgramId, handle: int, now: int) -> int | None:
        """Return the key of the kernel that a handle is from now on, by KERNEL_NOW; None where that may change untold."""
        if now & KERNEL_FORGOTTEN:
            return None
        if generation := now % _GENERATIONS:
            self._latest[program][handle] = generation
        elif program in self._latest:
            self._latest[program].pop(handle, None)
        return _key(handle, generation)

    def key(self, program: ProgramId, handle: int, generation: int | None = None) -> int:
        """Return the key of what a handle is, or was at a generation."""
        if generation is None:
            generation = self._latest[program].get(handle, 0) if program in self._latest else 0
        return _key(handle, generation)

    def forget(self, program: ProgramId) -> None:
        """Drop a program that has ended."""
        self._latest.pop(program, None)


def handle_of(key: int) -> int:
    """Return the handle that a key is of."""
    return key & _HANDLE


def _key(handle: int, generation: int) -> int:
    return handle | (generation + 1) << _HANDLE_BITS if generation else handle
