"""How is NVML asked without anybody having to wait for it? By a thread of its own: its library can hang with the driver."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from ...discovery.gpus import Gpu
from ...runtime.supervision import Component, Health, Worker
from ...signals.metrics import Measurement, SelfReading
from ...signals.standing import Standing
from .library import NvmlMissingError, NvmlUnavailableError
from .receiver import NvmlReceiver

_log = logging.getLogger(__name__)
_ANSWER_S = 2.0
"""How long a collection waits for what NVML says now; what comes later is in the next one."""
_CLOSE_S = 2.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 15.0
"""How soon NVML is looked for again where it is not there or does not answer: a driver may be installed, loaded or replaced."""

Learn = Callable[[Sequence[Gpu], Collection[tuple[str, int]]], None]
"""Takes in the host's GPUs, and which process (UUID, pid) is on which."""


class NvmlWorker:
    """Hands out what a thread reads of NVML whenever it is asked to. Safe to use from several threads."""

    def __init__(self, nvml: NvmlReceiver, learn: Learn) -> None:
        """NVML is opened by the thread too: to wake a GPU can take seconds. It is tried again for as long as this lives."""
        self._nvml = nvml
        self._learn = learn
        self._retry_s = _FIRST_RETRY_S
        self._retry_at = 0.0
        self._is_told = False
        self._lock = threading.Lock()
        self._measured: list[Measurement] = []
        self._standing = Standing()
        self._is_asked = False
        self._answered = threading.Event()
        self._answered.set()
        self._driver = Component("nvml driver")
        self._worker = Worker("nvml", self._answer)
        self._worker.start()

    def health(self) -> list[Health]:
        """Say how the threads are that ask NVML and listen to it, and whether it answers."""
        return [self._worker.health(), self._driver.health(), *self._nvml.health()]

    def readings(self) -> Iterator[SelfReading]:
        """Yield what was measured of asking."""
        yield from self._nvml.readings()

    def prepare(self) -> None:
        """Have everything read, and wait for it for a moment; not at all while it has yet to answer the last time."""
        if not self._answered.is_set():
            return
        self._answered.clear()
        self._is_asked = True
        self._worker.wake()
        self._answered.wait(_ANSWER_S)

    def collect(self) -> list[Measurement]:
        """Return what was read since the last call, and what fell silent since: all of it while NVML does not answer."""
        with self._lock:
            measured, self._measured = self._measured, []
            return measured + self._standing.now(measured)

    def close(self) -> None:
        """Stop asking, and shut NVML down unless it hangs."""
        if self._worker.stop(_CLOSE_S):
            self._nvml.close()

    def _answer(self) -> float:
        try:
            if not self._nvml.is_open and time.monotonic() >= self._retry_at:
                self._open()
            if self._nvml.is_open and self._is_asked:
                self._learn(self._nvml.gpus(), self._nvml.process_memory())
                measured = self._nvml.collect()
                with self._lock:
                    self._measured += measured
        except NvmlUnavailableError as e:
            self._fail(e)
        finally:
            self._is_asked = False
            self._answered.set()
        return math.inf if self._nvml.is_open else max(self._retry_at - time.monotonic(), 0.0)

    def _open(self) -> None:
        self._nvml.open()
        self._driver.works()
        if self._is_told:
            _log.info("hardware metrics from now on: NVML answers")
        self._is_told, self._retry_s = False, _FIRST_RETRY_S

    def _fail(self, error: NvmlUnavailableError) -> None:
        self._nvml.close()
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(self._retry_s * 2, _LONGEST_RETRY_S)
        if not isinstance(error, NvmlMissingError):
            self._driver.failed(error)
        if not self._is_told:
            self._is_told = True
            _log.info("no hardware metrics until NVML answers: %s", error)
