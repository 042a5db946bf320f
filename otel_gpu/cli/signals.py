"""How is the command told to stop, and what if it does not? Two signals, and a last resort that says what hangs."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ..runtime.whereabouts import whereabouts
from ..text import one_line
from .exit import leave

LAST_RESORT_S = 9.0
"""How long a stop may take. Whoever runs services waits for ten seconds, and then ends them without a word."""
_WITHOUT_PYTHON_S = 0.6
"""How much later Python's own watchdog does the same, should no line of Python be run any more."""
_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Told(threading.Event):
    """Set by the first signal that tells the command to stop, which it names."""

    number: int = 0

    def by(self, number: int) -> None:
        """A signal came."""
        self.number = self.number or number
        self.set()


@contextmanager
def stop_signals(
    on_first: Callable[[], None] = lambda: None, wake: Callable[[], None] = lambda: None
) -> Iterator[Told]:
    """Set an event on the first SIGTERM or SIGINT; the second one ends the process as usual.

    A thread hears of them as well: the main thread handles none while it is in a call that does not return. That thread
    calls `wake` too, which may take locks: what handles a signal may not, as the thread that it interrupts may hold them.
    """
    told = Told()

    def handle(number: int, _frame: FrameType | None) -> None:
        told.by(number)
        on_first()
        signal.signal(number, signal.SIG_DFL)

    earlier = {number: signal.signal(number, handle) for number in _STOPPING}
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    listener = threading.Thread(
        target=_listen, args=(reader, told, on_first, wake), name="otel-gpu-signals", daemon=True
    )
    with contextlib.suppress(RuntimeError):  # without room for a thread the handlers have to do
        listener.start()
    try:
        yield told
    finally:
        for number, handler in earlier.items():
            # What was asked for is done: to be told to stop on the way out is no failure.
            signal.signal(number, signal.SIG_IGN if handler is signal.SIG_DFL else handler)
        signal.set_wakeup_fd(fd_before)
        os.close(writer)


def _listen(reader: int, told: Told, on_first: Callable[[], None], wake: Callable[[], None]) -> None:
    heard = 0
    while data := os.read(reader, 64):
        for number in data:
            if number not in _STOPPING:
                continue
            heard += 1
            if heard > 1:
                os._exit(128 + number)
            told.by(number)
            on_first()
            wake()
    os.close(reader)


class LastResort:
    """Ends the process when it has not ended by itself in time, with a line that says what hangs."""

    def __init__(self, timeout_s: float = LAST_RESORT_S) -> None:
        self._timeout_s = timeout_s
        # A signal may be handled by the very thread that is arming it.
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> LastResort:
        """Return it unarmed."""
        return self

    def __exit__(self, *_: object) -> None:
        """It ended in time."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                faulthandler.cancel_dump_traceback_later()

    def arm(self) -> None:
        """Begin to count; later calls change nothing."""
        with self._lock:
            if self._timer is not None:
                return
            self._timer = threading.Timer(self._timeout_s, self._end)
            self._timer.daemon = True
            # Each is a thread: without room for one there may still be the other.
            with contextlib.suppress(RuntimeError, MemoryError):
                faulthandler.dump_traceback_later(self._timeout_s + _WITHOUT_PYTHON_S, exit=True, file=2)
            with contextlib.suppress(RuntimeError, MemoryError):
                self._timer.start()

    def _end(self) -> None:
        line = (
            f"otel-gpu: not stopped after {self._timeout_s:g} s; ended without waiting for "
            f"{'; '.join(hanging()) or 'the rest of Python'}; report it with the log of --debug"
        )
        with contextlib.suppress(OSError):
            os.write(2, f"{one_line(line, 2000)}\n".encode())
        leave(1)


def hanging() -> list[str]:
    """Say of the main thread, and of the one that does what belongs to a stop, in which function they are."""
    return whereabouts({"MainThread", "otel-gpu-stop"}.__contains__)
