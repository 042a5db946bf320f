"""What belongs into a recording's totals, though no stack stands for it? Calls since a thread's last one, and lost stacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...bpf.abi.samples import REMAINDER, REMAINDER_KEY, SAMPLED_THREAD, WORK_DEVICE_SHIFT, SampleType
from ...bpf.object import BpfObject
from ...components.counting.owners import are_of
from ...discovery.program_id import ProgramId
from .sums import StackSample

_NUMBER_BYTES = 4
_SAMPLED_TYPES = (
    SampleType.LAUNCH,
    SampleType.WAIT,
    SampleType.COPY,
    SampleType.ALLOC,
    SampleType.OFF_CPU,
    SampleType.TENSOR,
)
"""The types of a thread's samplers, in their order (sampler_at of ebpf/profile/); of submissions there are more."""
_WITHOUT = frozenset({SampleType.FREE, SampleType.BACKWARD, SampleType.BACKWARD_DONE})
"""Samples that stand for nothing that is added up."""
_TRIES = 8
"""Threads that end while they are read are read again, unless it never ends."""


class Remainder(NamedTuple):
    """What a program did of one type, and on which device if they are submissions."""

    program: ProgramId
    kind: int
    device: int
    value: int
    calls: int


class Remainders:
    """The kernel's own account of each thread, and what was lost on the way here. Owned by one thread."""

    def __init__(self, profile: BpfObject) -> None:
        self._threads = profile.map("sampled_threads")
        self._remainders = profile.map("remainders")
        self._recordings = profile.map("recordings")
        self._recording = 0
        self._lost: Counter[tuple[ProgramId, int, int]] = Counter()

    def begin(self) -> None:
        """Forget what was kept until now."""
        self._lost.clear()
        self._recording += 1
        self._recordings.put(bytes(4), self._recording.to_bytes(_NUMBER_BYTES, "little"))
        keys, _ = self._read()
        self._remainders.delete_many(keys)

    def lost(self, sample: StackSample) -> None:
        """Keep what a stack stood for that could not be taken in."""
        if sample.kind in _WITHOUT:
            return
        program = sample.program
        if sample.kind == SampleType.SUBMISSION:
            self._lost[program, sample.kind, sample.value >> WORK_DEVICE_SHIFT] += sample.calls
        else:
            self._lost[program, sample.kind, 0] += sample.value

    def take(self) -> Iterator[Remainder]:
        """Yield what no stack stands for, of all programs, and forget it."""
        told = list(self._told(*self._read()))
        threads = list(self._of_threads())
        for _ in range(_TRIES):
            # What a thread has is told with the others when it ends.
            before, told = told, list(self._told(*self._read()))
            if told == before:
                break
            threads = list(self._of_threads())
        lost = list(self._of_lost(set(self._lost)))
        self.begin()
        yield from (*threads, *told, *lost)

    def take_of(self, ended: Collection[ProgramId]) -> Iterator[Remainder]:
        """Yield it of programs that have ended, and forget it."""
        keys, values = self._read()
        mine = are_of(ended, keys)
        self._remainders.delete_many(keys[mine])
        yield from self._told(keys[mine], values[mine])
        yield from list(self._of_lost({key for key in self._lost if key[0] in ended}))

    def _of_lost(self, keys: Collection[tuple[ProgramId, int, int]]) -> Iterator[Remainder]:
        for program, kind, device in keys:
            amount = self._lost.pop((program, kind, device))
            yield Remainder(program, kind, device, amount, amount)

    def _read(self) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
        return self._remainders.read(REMAINDER_KEY, REMAINDER)

    def _told(self, keys: npt.NDArray[np.void], values: npt.NDArray[np.void]) -> Iterator[Remainder]:
        for (tgid, exec_id, kind, device), (value, calls, recording) in zip(
            keys.tolist(), values.tolist(), strict=True
        ):
            if value and recording == self._recording:
                yield Remainder(ProgramId(tgid, exec_id), kind, device, value, calls)

    def _of_threads(self) -> Iterator[Remainder]:
        _, threads = self._threads.read("<u8", SAMPLED_THREAD)
        for thread in threads:
            program = ProgramId(int(thread["tgid"]), int(thread["exec_id"]))
            kinds = [*_SAMPLED_TYPES, *(SampleType.SUBMISSION for _ in thread["submissions"])]
            samplers = [*thread["samplers"], *thread["submissions"]]
            for kind, sampler in zip(kinds, samplers, strict=True):
                if sampler["value"] and sampler["recording"] == self._recording:
                    value, calls = int(sampler["value"]), int(sampler["calls"])
                    yield Remainder(program, kind, int(sampler["device"]), value, calls)
