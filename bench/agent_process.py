"""What does the agent cost as a process? `otel-gpu run` as users start it, its CPU clock and its memory."""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from bench.ground import ROOT, UnavailableError

_DEADLINE_S = 60.0
_LOOKS = 100
_POLL = {"x86_64": "7", "aarch64": "73"}
_ATTACHED = re.compile(r"attached \d+ probes")


class AgentProcess:
    """An agent that sends to `endpoint` every `interval_s` and observes `pids`, or all; ended with SIGTERM."""

    def __init__(
        self,
        endpoint: str,
        interval_s: float = 10.0,
        pids: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        entering: Callable[..., list[str]] = lambda *command: list(command),
    ) -> None:
        """`entering` makes of a command one that runs it in another place, such as a control group."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        self._discovery: str | None = None
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            entering(sys.executable, "-m", "otel_gpu", "run", *(f"--pid={pid}" for pid in pids), *arguments),
            cwd=ROOT,
            env={
                **clean,
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_METRIC_EXPORT_INTERVAL": f"{interval_s * 1e3:.0f}",
                **(environment or {}),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[tuple[float, str]] = queue.Queue()
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read, name="bench-agent-log", daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str | re.Pattern[str]) -> float:
        """Wait for a line of the log and return how many seconds after the start it came."""
        while True:
            try:
                at, line = self._lines.get(timeout=_DEADLINE_S)
            except queue.Empty:
                raise UnavailableError(f"the agent never said {pattern!r}, but: {self.log()}") from None
            if not line:
                raise UnavailableError(f"the agent ended: {self.log()}")
            if re.search(pattern, line):
                return at - self._began

    def log(self) -> str:
        """Return what it has said so far."""
        return "".join(self._said)

    def wait_attached(self, library: str) -> float:
        """Wait until the probes are in a library, and return how many seconds after the start that was."""
        return self.wait_for(re.compile(_ATTACHED.pattern + ".*" + re.escape(library)))

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the CPU time, user and system, of all its threads."""
        # include/linux/posix-timers_types.h: the clock of another process is its inverted pid above the kind.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def discovery_cpu_s(self) -> float:
        """Return the CPU time of the thread that follows the host's processes; 0 while it cannot be told."""
        if self._discovery is None:
            self._discovery = self._find_discovery()
        if self._discovery is None:
            return 0.0
        with open(f"{self._discovery}/schedstat", encoding="ascii") as schedstat:
            return int(schedstat.read().split()[0]) / 1e9

    def _find_discovery(self) -> str | None:
        # It sleeps in poll(2) on a descriptor for each CPU, which is more than any other thread has. Python
        # gives threads no names before 3.14.
        waiting: dict[str, int] = {}
        for _ in range(_LOOKS):
            for task in os.listdir(f"/proc/{self._process.pid}/task"):
                path = f"/proc/{self._process.pid}/task/{task}"
                with contextlib.suppress(OSError), open(f"{path}/syscall", encoding="ascii") as syscall:
                    call = syscall.read().split()
                    if call[0] == _POLL.get(platform.machine()):
                        waiting[path] = int(call[2], 16)
            time.sleep(0.01)
        most = [path for path, descriptors in waiting.items() if descriptors == max(waiting.values())]
        return most[0] if len(most) == 1 else None

    def rss_bytes(self) -> int:
        """Return the resident memory, shared pages too."""
        with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """End it; the last interval is sent when this returns. Idempotent."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise
        self._reader.join()

    def hold_still(self) -> None:
        """Have it do nothing more, for good."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def kill(self) -> None:
        """End it without giving it the time for anything."""
        self._process.kill()
        self._process.wait(_DEADLINE_S)
        self._reader.join()

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.put((time.monotonic(), line))
            self._said.append(line)
        self._lines.put((time.monotonic(), ""))
        self._process.stderr.close()
