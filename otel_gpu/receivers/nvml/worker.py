"""How is NVML asked without anybody having to wait for it? By a thread of its own: its library can hang with the driver."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterator, Sequence

from ...discovery.gpus import Gpu
from ...signals.metrics import Measurement, SelfReading
from ...supervision import Health, Worker
from .receiver import NvmlReceiver

_log = logging.getLogger(__name__)
_ANSWER_S = 2.0
"""How long a collection waits for what NVML says now; what comes later is in the next one."""
_CLOSE_S = 2.0

Learn = Callable[[Sequence[Gpu], Collection[tuple[str, int]]], None]
"""Takes in the host's GPUs, and which process (UUID, pid) is on which."""


class NvmlWorker:
    """Hands out what a thread reads of NVML whenever it is asked to. Safe to use from several threads."""

    def __init__(self, open_nvml: Callable[[], NvmlReceiver], learn: Learn) -> None:
        """NVML is opened by the thread too: to wake a GPU can take seconds."""
        self._open = open_nvml
        self._learn = learn
        self._nvml: NvmlReceiver | None = None
        self._lock = threading.Lock()
        self._measured: list[Measurement] = []
        self._is_asked = False
        self._answered = threading.Event()
        self._answered.set()
        self._worker = Worker("nvml", self._answer)
        self._worker.start()

    def health(self) -> list[Health]:
        """Say how the threads are that ask NVML and listen to it."""
        return [self._worker.health(), *(self._nvml.health() if self._nvml is not None else ())]

    def readings(self) -> Iterator[SelfReading]:
        """Yield what was measured of asking."""
        if self._nvml is not None:
            yield from self._nvml.readings()

    def prepare(self) -> None:
        """Have everything read, and wait for it for a moment; not at all while it has yet to answer the last time."""
        if self._worker.is_done or not self._answered.is_set():
            return
        self._answered.clear()
        self._is_asked = True
        self._worker.wake()
        self._answered.wait(_ANSWER_S)

    def collect(self) -> list[Measurement]:
        """Return what was read since the last call."""
        with self._lock:
            measured, self._measured = self._measured, []
        return measured

    def close(self) -> None:
        """Stop asking, and shut NVML down unless it hangs."""
        if self._worker.stop(_CLOSE_S) and self._nvml is not None:
            self._nvml.close()

    def _answer(self) -> float | None:
        if self._nvml is None:
            nvml = self._open()
            if not nvml.available:
                _log.info("no hardware metrics: %s", nvml.reason)
                self._answered.set()
                return None
            self._nvml = nvml
        if self._is_asked:
            try:
                self._learn(self._nvml.gpus(), self._nvml.process_memory())
                measured = self._nvml.collect()
                with self._lock:
                    self._measured += measured
            finally:
                self._is_asked = False
                self._answered.set()
        return math.inf
