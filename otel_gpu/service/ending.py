"""How does everything end in time, whatever hangs? One thing after another, each for a share of the time that is left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..runtime import supervision
from ..runtime.deadline import Deadline
from ..runtime.supervision import Component
from ..runtime.whereabouts import whereabouts
from ..text import one_line

_log = logging.getLogger(__name__)
_NAME = "otel-gpu-stop"
_TO_RETURN_S = 0.5
_OUR_THREADS = "otel-gpu-"
_MOST_CHARACTERS = 2000


class Ending:
    """Does what belongs to an end in order. What hangs or fails keeps nothing of the rest from being done."""

    def __init__(self, timeout_s: float) -> None:
        """All of it is over by then."""
        self._timeout_s = timeout_s
        self._deadline = Deadline(timeout_s)
        self._component = Component("stop")
        self._hung: list[str] = []
        self._at: dict[str, list[str]] = {}
        """Where threads were when the time of each of these was up."""
        self._unreleased: list[str] = []

    @property
    def is_complete(self) -> bool:
        """Whether everything was over in its time so far, releases left out."""
        return not self._hung

    def attempt(self, what: str, do: Callable[[], object]) -> None:
        """Do one thing, for half of the time left: what follows has the other half."""
        self.attempt_within(what, lambda _: do())

    def attempt_within(self, what: str, do: Callable[[float], object], *, keep_s: float | None = None) -> None:
        """Do one thing that wants to know for how many seconds: half of what is left, or all but `keep_s`."""
        left_s = self._deadline.left_s
        limit_s = left_s / 2 if keep_s is None else max(left_s - keep_s, 0.0)
        # What takes all the time that it is given has ended in time.
        if not self._did(lambda: do(max(limit_s - _TO_RETURN_S, limit_s / 2)), limit_s):
            self._hung.append(what)
            self._at[what] = whereabouts(lambda name: name.startswith(_OUR_THREADS), supervision.__name__)

    def release(self, what: str, do: Callable[[], object]) -> None:
        """Let go of something, for half of the time left; it goes on being let go of after that."""
        if not self._did(do, self._deadline.left_s / 2):
            self._unreleased.append(what)

    def tell(self) -> None:
        """Log what was not over in its time."""
        if self._hung:
            hung = ", ".join(self._hung)
            _log.warning("stopped after %g s without waiting any longer for %s", self._timeout_s, hung)
            for what, threads in self._at.items():
                _log.info("%s: threads were at %s", what, one_line("; ".join(threads), _MOST_CHARACTERS))
        if self._unreleased:
            _log.info("%s still being released", ", ".join(self._unreleased))

    def _did(self, do: Callable[[], object], limit_s: float) -> bool:
        def attempt() -> None:
            with self._component:
                do()

        # A thread: what hangs in the kernel or in somebody's library cannot be interrupted, only left behind.
        thread = threading.Thread(target=attempt, name=_NAME, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            attempt()
            return True
        thread.join(limit_s)
        return not thread.is_alive()
