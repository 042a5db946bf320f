"""What did the kernel tell? Records of a ring buffer, in order, handed to one function."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import select
import threading
import time
from collections.abc import Callable

from ..errors import LoadError
from ..runtime.shortage import memory_advice
from ..runtime.supervision import Worker
from . import libbpf as lib
from .maps import BpfMap

_log = logging.getLogger(__name__)
_POLL_S, _IDLE_POLL_S = 0.5, 2.0
"""How long records lie there that woke nobody: the longer, the longer there were none."""
_FULL_SHARE = 8
"""Records that fill this part of the buffer gather no longer: the rest is for those that come while they are read."""
_CLOSE_S = 5.0


class RingReader:
    """Reads a ring buffer in a thread of its own, and whenever `drain` is called."""

    def __init__(
        self,
        ring: BpfMap,
        on_record: Callable[[bytes], None],
        *,
        gather_s: Callable[[], float] = float,
        used: Callable[[int], int] | None = None,
        on_drained: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_record` is called with each record, by one thread at a time; what it raises is logged and counted.

        `on_drained` is called after all that were there. Once woken, it lets records gather for as long as `gather_s` says. `used` says of the record at an address how
        many of its bytes were written: to copy more costs more than to read a record.
        """
        self._gather_s = gather_s
        self._used = used
        self._on_record = on_record
        self._on_drained = on_drained
        self._poll_s = _POLL_S
        self._taken = 0
        self._callback = lib.SAMPLE_FUNCTION(self._take)
        self._lib = lib.libbpf()
        self._ring = self._lib.ring_buffer__new(ring.fd, ctypes.cast(self._callback, ctypes.c_void_p), None, None)
        if not self._ring:
            raise LoadError(f"the ring buffer cannot be mapped; {memory_advice()}")
        self._positions = _Positions(ring.fd)
        self._full_bytes = ring.max_entries // _FULL_SHARE
        self._lock = threading.Lock()
        self._hurried = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wakes = select.epoll()
        # By edge: what gathers is there all the time, and wakes nobody.
        self._wakes.register(ring.fd, select.EPOLLIN | select.EPOLLET)
        self._wakes.register(self._hurried, select.EPOLLIN)
        self.worker = Worker(ring.name, self._read, interrupt=self.hurry)
        self.worker.start()

    def drain(self) -> None:
        """Handle every record that is there now."""
        with self._lock:
            if self._ring:
                self._lib.ring_buffer__consume(self._ring)
                self._on_drained()

    def hurry(self) -> None:
        """Let records gather no longer this time."""
        os.eventfd_write(self._hurried, 1)

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Stop reading, and let go of the buffer unless a record is still being handled then; idempotent."""
        if self._wakes.closed:
            return
        if not self.worker.stop(timeout_s):
            _log.warning("a record of %s is still being handled after %.0f s", self.worker.component.name, timeout_s)
            return
        with self._lock:
            self._lib.ring_buffer__free(self._ring)
            self._ring = None
            self._positions.close()
            self._wakes.close()
            os.close(self._hurried)

    def _read(self) -> float:
        # It looks by itself too: programs need not wake it.
        if self._wakes.poll(self._poll_s):
            self._gather()
        taken, self._taken = self._taken, 0
        self.drain()
        # To look costs more than most of what else is done of a host where nothing happens.
        is_idle = not taken and not self._taken
        self._poll_s = min(2 * self._poll_s, _IDLE_POLL_S) if is_idle else _POLL_S
        return 0.0

    def _gather(self) -> None:
        deadline = time.monotonic() + self._gather_s()
        while not self._is_hurried() and self._positions.waiting_bytes() < self._full_bytes:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._wakes.poll(left)

    def _is_hurried(self) -> bool:
        try:
            return os.eventfd_read(self._hurried) > 0
        except BlockingIOError:
            return False

    def _take(self, _context: int, data: int, size: int) -> int:
        self._taken += 1
        try:
            if self._used is not None:
                size = min(size, self._used(data))
            self._on_record(ctypes.string_at(data, size))
        except BaseException as e:  # noqa: BLE001 - cannot pass through C; one record must not cost the others
            self.worker.component.note(e)
        return 0


class _Positions:
    """How far the kernel has written and the agent read: the first two pages of the buffer's mapping."""

    def __init__(self, fd: int) -> None:
        page = mmap.PAGESIZE
        self._read = mmap.mmap(fd, page, mmap.MAP_SHARED, mmap.PROT_READ, offset=0)
        self._written = mmap.mmap(fd, page, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)

    def close(self) -> None:
        self._read.close()
        self._written.close()

    def waiting_bytes(self) -> int:
        return int.from_bytes(self._written[:8], "little") - int.from_bytes(self._read[:8], "little")
