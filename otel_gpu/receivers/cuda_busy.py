"""How long did devices work, between which bounds? What the kernel knows of them, as of now."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from dataclasses import dataclass

from ..abi import BUSY, BUSY_KEY
from ..bpf.maps import BpfMap

Program = tuple[int, int]
"""tgid and incarnation."""


@dataclass(frozen=True, slots=True)
class BusyDelta:
    """What the bounds of a device's busy time, for one program, grew by."""

    program: Program
    device: int
    lower_ns: int
    upper_ns: int


class BusyReader:
    """Reads the kernel's table of devices, remembering what it said of each."""

    def __init__(self, table: BpfMap) -> None:
        self._table = table
        self._said: dict[tuple[int, int, int], tuple[int, int]] = {}

    def read(self, known: Container[Program]) -> Iterator[BusyDelta]:
        """Yield what grew: time that goes on counts until now, but not for programs that are `known` no longer."""
        keys, values = self._table.read(BUSY_KEY, BUSY)
        now = time.monotonic_ns()
        for (tgid, incarnation, device, _), state in zip(keys.tolist(), values.tolist(), strict=True):
            lower, upper = bounds(now, *state)
            key = (tgid, incarnation, device)
            if key in self._said and key[:2] not in known:
                self.forget({key[:2]})
                continue
            lower_before, upper_before = self._said.get(key, (0, 0))
            # A gap that is found only when it ends was counted as busy until then.
            self._said[key] = max(lower, lower_before), max(upper, upper_before)
            grown = max(lower - lower_before, 0), max(upper - upper_before, 0)
            if any(grown):
                yield BusyDelta((tgid, incarnation), device, *grown)

    def forget(self, programs: set[Program]) -> None:
        """Drop programs that have ended."""
        for key in [k for k in self._said if k[:2] in programs]:
            del self._said[key]
            self._table.delete(b"".join(part.to_bytes(4, "little") for part in (*key, 0)))


def bounds(
    now: int, first: int, idle: int, lower: int, idle_since: int, idle_submissions: int, submissions: int
) -> tuple[int, int]:
    """Return lower and upper bound of the nanoseconds of work since the first submission; see struct busy."""
    if not first:
        return 0, 0
    is_idle = idle_since and submissions == idle_submissions
    return lower, (idle_since if is_idle else now) - first - idle
