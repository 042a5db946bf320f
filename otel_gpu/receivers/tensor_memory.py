"""Whose are the tensors that live? The kernel adds their bytes up by group; a stack stands for each group."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from .. import abi
from ..bpf.maps import BpfMap
from ..profiles import Stack, marker

Program = tuple[int, int]
_NOT_SAMPLED: Stack = (marker("[not sampled]"),)


class TensorMemory:
    """The groups of tensors of all programs. Owned by one thread."""

    def __init__(self, tensors: BpfMap, groups: BpfMap) -> None:
        self._tensors = tensors
        self._groups = groups
        self._stacks: dict[int, Stack] = {}

    def charge(self, group: int, stack: Stack) -> None:
        """Note the stack that stands for a group."""
        self._stacks[group] = stack

    def alive(self) -> Iterator[tuple[Program, Stack, int]]:
        """Yield who holds how many bytes from where; groups without a live tensor are forgotten."""
        gone = set(self._stacks)
        numbers, groups = self._groups.read("<u8", abi.TENSOR_GROUP)
        for number, (size_bytes, tgid, incarnation, *_) in zip(numbers.tolist(), groups.tolist(), strict=True):
            gone.discard(number)
            if size_bytes:
                yield (tgid, incarnation), self._stacks.get(number, _NOT_SAMPLED), size_bytes
        for number in gone:
            del self._stacks[number]

    def forget(self, programs: Collection[Program]) -> None:
        """Drop what is kept of programs that have ended."""
        if not programs:
            return
        keys, _ = self._tensors.read(abi.LIVE_KEY, "<u8,<u8")
        self._delete(self._tensors, keys, keys, programs)
        numbers, groups = self._groups.read("<u8", abi.TENSOR_GROUP)
        self._delete(self._groups, numbers, groups, programs)

    def _delete(
        self, table: BpfMap, keys: npt.NDArray[np.generic], owners: npt.NDArray[np.void], programs: Collection[Program]
    ) -> None:
        for key, tgid, incarnation in zip(keys, owners["tgid"].tolist(), owners["incarnation"].tolist(), strict=True):
            if (tgid, incarnation) in programs:
                table.delete(key.tobytes())
