"""What did the kernel tell? Records of a ring buffer, in order, handed to one function."""

from __future__ import annotations

import ctypes
import logging
import select
import threading
from collections.abc import Callable

from ..errors import LoadError
from . import libbpf as lib
from .maps import BpfMap

_log = logging.getLogger(__name__)
_POLL_MS = 500


class RingReader:
    """Reads a ring buffer in a thread of its own, and whenever `drain` is called."""

    def __init__(
        self,
        ring: BpfMap,
        on_record: Callable[[bytes], None],
        *,
        gather_s: Callable[[], float] = float,
        used: Callable[[int], int] | None = None,
    ) -> None:
        """`on_record` is called with each record, by one thread at a time; what it raises is logged.

        Once woken, it lets records gather for as long as `gather_s` says. `used` says of the record at an address how
        many of its bytes were written: to copy more costs more than to read a record.
        """
        self._gather_s = gather_s
        self._used = used
        self._on_record = on_record
        self._callback = lib.SAMPLE_FUNCTION(self._take)
        self._lib = lib.libbpf()
        self._ring = self._lib.ring_buffer__new(ring.fd, ctypes.cast(self._callback, ctypes.c_void_p), None, None)
        if not self._ring:
            raise LoadError("the ring buffer cannot be mapped; see the memory limits of this process")
        self._fd = ring.fd
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._hurried = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"otel-gpu-{ring.name}", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Handle every record that is there now."""
        with self._lock:
            if self._ring:
                self._lib.ring_buffer__consume(self._ring)

    def hurry(self) -> None:
        """Let records gather no longer this time."""
        self._hurried.set()

    def close(self) -> None:
        """Stop reading; idempotent."""
        self._stop.set()
        self._hurried.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            if self._ring:
                self._lib.ring_buffer__free(self._ring)
                self._ring = None

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while not self._stop.is_set():
            # It looks by itself too: programs need not wake it.
            if poll.poll(_POLL_MS):
                self._hurried.wait(self._gather_s())
                self._hurried.clear()
            self.drain()

    def _take(self, _context: int, data: int, size: int) -> int:
        try:
            if self._used is not None:
                size = min(size, self._used(data))
            self._on_record(ctypes.string_at(data, size))
        except Exception:  # noqa: BLE001 - see below
            # An exception cannot pass through C; one bad record must not cost the others.
            _log.exception("a record of the ring buffer could not be handled")
        return 0
