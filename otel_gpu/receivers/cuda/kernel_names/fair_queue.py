"""Which program's item is next? Every program has a queue of its own, and its share of the room.

A program may have as many items here as there is room left, so that one which fills the room has half of it and others
find some; and the queues are served in turn, so that nobody waits behind a long one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection
from typing import Generic, TypeVar

from ....discovery.program_id import ProgramId

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of programs. Safe to use from several threads."""

    def __init__(self, room: int) -> None:
        """Hold at most `room` items, those that were taken and are not done with among them."""
        self._room = room
        self._lock = threading.Lock()
        self._queues: OrderedDict[ProgramId, deque[T]] = OrderedDict()
        self._held: dict[ProgramId, int] = {}
        self._unfinished = 0

    @property
    def unfinished(self) -> int:
        """How many items wait, or were taken and are not done with."""
        return self._unfinished

    def holds(self, programs: Collection[ProgramId] | None = None) -> bool:
        """Say whether there are such items of programs, or of any."""
        if programs is None:
            return self._unfinished > 0
        with self._lock:
            return not self._held.keys().isdisjoint(programs)

    def put(self, program: ProgramId, item: T) -> bool:
        """Put an item at the end of its program's queue; False where the program has no share left."""
        with self._lock:
            its = self._held.get(program, 0)
            if its >= self._room - self._unfinished:
                return False
            self._held[program] = its + 1
            self._unfinished += 1
            self._queues.setdefault(program, deque()).append(item)
            return True

    def take(self, most: int) -> list[T]:
        """Take so many items at the most, one of each program in turn."""
        taken: list[T] = []
        with self._lock:
            while self._queues and len(taken) < most:
                program, queue = self._queues.popitem(last=False)
                taken.append(queue.popleft())
                if queue:
                    self._queues[program] = queue
        return taken

    def done(self, program: ProgramId) -> None:
        """Say that an item of a program is done with."""
        with self._lock:
            self._unfinished -= 1
            self._held[program] -= 1
            if not self._held[program]:
                del self._held[program]
