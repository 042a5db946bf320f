"""The instant at which each driver's probes were placed, here and in the kernel.

A program that began later did nothing with that driver unseen. Another driver's probes, which come when a container brings its
own, change nothing for it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ...bpf.abi.cookies import LIBRARIES
from ...bpf.maps import BpfMap

_NEVER = (1 << 64) - 1


class Placements:
    """The instants by a library's number. Safe to use from several threads."""

    def __init__(self, placed: BpfMap) -> None:
        self._placed = placed
        self._lock = threading.Lock()
        self._next = 0
        self._are_placing: Counter[int] = Counter()
        self._at_ns = [0] * LIBRARIES

    @property
    def last_ns(self) -> int:
        """The last one, by CLOCK_BOOTTIME; in the future while probes are being placed."""
        return max(self._at_ns)

    @contextmanager
    def placing(self) -> Iterator[int]:
        """Yield a number for a library whose probes are placed now.

        Numbers go round: an earlier library of the same number has the later instant then, which is safe.
        """
        with self._lock:
            number = self._next % LIBRARIES
            self._next += 1
            self._are_placing[number] += 1
            self._note(number, _NEVER)
        try:
            yield number
        finally:
            with self._lock:
                self._are_placing[number] -= 1
                if not self._are_placing[number]:
                    self._note(number, time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def _note(self, number: int, at_ns: int) -> None:
        self._at_ns[number] = at_ns
        self._placed.put(number.to_bytes(4, "little"), at_ns.to_bytes(8, "little"))
