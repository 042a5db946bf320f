"""Whose are the tensors that live? The kernel adds their bytes up by group; a stack stands for each group."""

from __future__ import annotations

from collections.abc import Iterator

from ...bpf.abi.samples import TENSOR_GROUP
from ...bpf.maps import BpfMap
from ...discovery.program_id import ProgramId
from ...signals.profiles import Stack, marker

_NOT_SAMPLED: Stack = (marker("[not sampled]"),)


class TensorMemory:
    """The groups of tensors of all programs. Owned by one thread."""

    def __init__(self, groups: BpfMap) -> None:
        self._groups = groups
        self._stacks: dict[int, Stack] = {}

    def charge(self, group: int, stack: Stack) -> None:
        """Note the stack that stands for a group."""
        self._stacks[group] = stack

    def alive(self) -> Iterator[tuple[ProgramId, Stack, int]]:
        """Yield who holds how many bytes from where; groups without a live tensor are forgotten."""
        gone = set(self._stacks)
        numbers, groups = self._groups.read("<u8", TENSOR_GROUP)
        for number, (size_bytes, tgid, exec_id, *_) in zip(numbers.tolist(), groups.tolist(), strict=True):
            gone.discard(number)
            if size_bytes:
                yield ProgramId(tgid, exec_id), self._stacks.get(number, _NOT_SAMPLED), size_bytes
        for number in gone:
            del self._stacks[number]
