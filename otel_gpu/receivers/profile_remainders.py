"""What do the calls add up to that no stack stands for? Those since a thread's last stack, and those whose stack was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from .. import abi
from ..abi import SampleType
from ..bpf.maps import BpfMap
from .profile_sums import StackSample

Program = tuple[int, int]
_DEVICE_SHIFT = 8
"""Of submissions the device stands above the type (ebpf/profile.bpf.c)."""
_WITHOUT = frozenset({SampleType.FREE, SampleType.BACKWARD, SampleType.BACKWARD_DONE})
"""Samples that stand for nothing that is added up."""


class Remainder(NamedTuple):
    """What calls of one kind add up to: their number for submissions, else their value."""

    kind: int
    device: int
    amount: int


class Remainders:
    """The kernel's own account of each thread, and what was lost on the way here. Owned by one thread."""

    def __init__(self, samplers: BpfMap) -> None:
        self._samplers = samplers
        self._lost: dict[Program, Counter[int]] = {}

    def clear(self) -> None:
        """Begin anew: what was done so far stands for nothing."""
        self._lost.clear()
        keys, values = self._samplers.read(abi.SAMPLER_KEY, abi.SAMPLER)
        values["value"] = values["calls"] = 0
        for key, value in zip(keys, values, strict=True):
            self._samplers.put(key.tobytes(), value.tobytes())

    def lost(self, sample: StackSample) -> None:
        """Keep what a stack stood for that could not be taken in."""
        if sample.kind in _WITHOUT:
            return
        kind, amount = sample.kind, sample.value
        if kind == SampleType.SUBMISSION:
            kind |= sample.value >> abi.WORK_DEVICE_SHIFT << _DEVICE_SHIFT
            amount = sample.calls
        self._lost.setdefault((sample.tgid, sample.incarnation), Counter())[kind] += amount

    def take(self, wanted: Callable[[Program], bool]) -> Iterator[tuple[Program, list[Remainder]]]:
        """Yield what there is of the programs that are wanted, once."""
        keys, values = self._samplers.read(abi.SAMPLER_KEY, abi.SAMPLER)
        programs = keys["pid_tgid"] >> 32 << 32 | keys["incarnation"]
        numbers = {divmod(number, 1 << 32): number for number in np.unique(programs).tolist()}
        for program in numbers.keys() | self._lost.keys():
            if not wanted(program):
                continue
            mine = programs == numbers.get(program, 0)
            amounts = self._lost.pop(program, Counter())
            columns = keys["type"][mine], values["value"][mine], values["calls"][mine]
            for kind, value, calls in zip(*(c.tolist() for c in columns), strict=True):
                amounts[kind] += calls if kind % (1 << _DEVICE_SHIFT) == SampleType.SUBMISSION else value
            yield program, [Remainder(kind & 0xFF, kind >> _DEVICE_SHIFT, n) for kind, n in amounts.items()]
            self._samplers.delete_many(keys[mine])
