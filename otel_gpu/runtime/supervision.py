"""Does every component still do its work, and what becomes of one that fails? It goes on, and says how it is.

A component with a thread of its own is a Worker: its work is a step that is taken again and again. What a step raises,
whatever it is, ends that step and not the thread: it is counted, logged once, and the next step follows after a pause
that doubles from failure to failure. One without is a Component, whose work is guarded where it is done.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from ..errors import OtelGpuError
from ..signals.structs import Frozen
from ..text import one_line
from .shortage import is_memory_shortage, memory_advice

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0
_STUCK_AFTER_S = 60.0
"""A step that takes longer hangs, as far as anybody can tell."""
_MAX_TOLD = 64
"""Kinds of failures that are told apart, so that each is logged once; those beyond are only counted."""

Item = TypeVar("Item")
Step = Callable[[], float | None]
"""One round of work. Returns in how many seconds the next one is due (`math.inf`: when woken), None when it was the last."""


class Health(Frozen):
    """How one component is."""

    component: str
    failures: int
    """How often its work failed, since the start."""
    trouble: str = ""
    """Why it does not do its work now; empty when it does."""

    @property
    def is_good(self) -> bool:
        """Whether it does its work."""
        return not self.trouble


class Component:
    """What is known of one component's failures; any thread may note them, and ask.

    As a context manager it guards work that nothing else depends on: what is raised within is noted, and goes no further.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._failures = 0
        self._trouble = ""
        self._told: set[tuple[str, int]] = set()

    def __enter__(self) -> Component:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> bool:
        if error is None:
            self.works()
        elif isinstance(error, Exception):
            self.failed(error)
        return isinstance(error, Exception)

    def health(self) -> Health:
        """Say whether the work is being done."""
        return Health(self.name, self._failures, self._trouble)

    def each(self, items: Iterable[Item], do: Callable[[Item], object]) -> int:
        """Do something for each, a second time where it fails; return for how many it could not be done."""
        failed = [item for item in items if not self._did(do, item)]
        return sum(not self._did(do, item) for item in failed)

    def works(self) -> None:
        """Note that the work was done."""
        self._trouble = ""

    def failed(self, error: BaseException) -> None:
        """Note that the work was not done; until it is, the component is in trouble."""
        self._trouble = _described(error)
        self.note(error)

    def note(self, error: BaseException) -> None:
        """Count and log, once for each kind, what went wrong in a part of the work that the rest does not need."""
        self._failures += 1
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        kind = type(error).__name__, 0 if at is None else hash((at.tb_frame.f_code.co_filename, at.tb_lineno))
        if kind in self._told or len(self._told) >= _MAX_TOLD:
            return
        self._told.add(kind)
        _log.error("%s: %s; it goes on, and says this once; --debug shows where", self.name, _described(error))
        _log.debug("%s failed there", self.name, exc_info=error)

    def _did(self, do: Callable[[Item], object], item: Item) -> bool:
        try:
            do(item)
        except Exception as e:  # noqa: BLE001 - one item must not cost the others
            self.note(e)
            return False
        return True


class Worker:
    """A thread for the work of one component. `wake`, `stop` and `health` may be called by any thread.

    A step that waits for something of its own must do so for a second at most, or be told by `interrupt`, which is
    called by `wake` and `stop`, that it is to return. `recover` is called before the step that follows a failure.
    """

    def __init__(
        self,
        component: str,
        step: Step,
        *,
        interrupt: Callable[[], None] = lambda: None,
        recover: Callable[[], None] = lambda: None,
        stuck_after_s: float = _STUCK_AFTER_S,
    ) -> None:
        self.component = Component(component)
        self._step = step
        self._interrupt = interrupt
        self._recover = recover
        self._stuck_after_s = stuck_after_s
        self._told_to_stop = threading.Event()
        self._wake = threading.Event()
        self._began_at: float | None = None
        """When the present step began; None between two steps."""
        self._is_done = False
        self._in_a_row = 0
        self._thread = threading.Thread(target=self._run, name=f"otel-gpu-{component}"[:60], daemon=True)

    def start(self) -> None:
        """Begin; OtelGpuError where the system has no room for a thread."""
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as e:
            limits = "raise the limit of tasks (ulimit -u, pids.max of the cgroup) or of memory"
            advice = memory_advice() if is_memory_shortage(e) else limits
            raise OtelGpuError(f"no thread can be started for {self.component.name}: {e}; {advice}") from e

    def wake(self) -> None:
        """Have the next step taken now."""
        self._wake.set()
        self._interrupt()

    @property
    def is_done(self) -> bool:
        """Whether it took its last step by itself."""
        return self._is_done

    @property
    def is_stuck(self) -> bool:
        """Whether its work cannot go on: a step hangs, or the thread is gone."""
        return bool(self._trouble()) and self._thread.ident is not None

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop: what takes long looks now and then."""
        return self._told_to_stop.is_set()

    def pause(self, seconds: float) -> None:
        """Wait within a step, for so long or until it is told to stop."""
        self._told_to_stop.wait(seconds)

    def stop(self, timeout_s: float) -> bool:
        """Take no further step, and wait for the present one to end; False when the time is up first. Idempotent."""
        self._told_to_stop.set()
        self.wake()
        return self.join(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait until the last step is over; False when the time is up first."""
        if self._thread is threading.current_thread() or not self._thread.is_alive():
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def health(self) -> Health:
        """Say whether the work is being done."""
        noted = self.component.health()
        return replace(noted, trouble=self._trouble() or noted.trouble)

    def _trouble(self) -> str:
        if self._thread.ident is None:
            return "not started"
        if not self._thread.is_alive():
            return "" if self._is_done or self._told_to_stop.is_set() else "its thread has ended"
        began_at = self._began_at
        if began_at is not None and (took_s := time.monotonic() - began_at) > self._stuck_after_s:
            return f"has been at one step for {took_s:.0f} s"
        return ""

    def _run(self) -> None:
        while not self._told_to_stop.is_set() and not self._is_done:
            try:
                self._take_steps()
            except BaseException as e:  # noqa: BLE001 - nothing that a step raises may end the thread
                self._failed(e)

    def _take_steps(self) -> None:
        while not self._told_to_stop.is_set():
            self._began_at = time.monotonic()
            if self._in_a_row:
                self._recover()
            due_s = self._step()
            self._began_at, self._in_a_row = None, 0
            self.component.works()
            if due_s is None:
                self._is_done = True
                return
            self._wake.wait(None if due_s == math.inf else due_s)
            self._wake.clear()

    def _failed(self, error: BaseException) -> None:
        try:
            self._began_at = None
            self._in_a_row += 1
            self.component.failed(error)
            self._told_to_stop.wait(min(_FIRST_PAUSE_S * 2 ** min(self._in_a_row - 1, 16), _LONGEST_PAUSE_S))
        except BaseException:  # noqa: BLE001 - without memory not even a failure can be told
            time.sleep(_FIRST_PAUSE_S)


def _described(error: BaseException) -> str:
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
