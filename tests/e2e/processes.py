"""How are observed programs and the agent started, spoken to and stopped?"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.e2e import ground
from tests.e2e.truth import Truth

_ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 60


class _Child:
    """A child process whose output is read by threads, so that no wait is without end."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str], directory: Path) -> None:
        self.command = [str(word) for word in command]
        self.process = subprocess.Popen(
            self.command,
            env={**os.environ, **environment},
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self.errors: list[str] = []
        self._error_came = threading.Condition()
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._read_output, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read_output(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        for line in self.process.stderr:
            with self._error_came:
                self.errors.append(line)
                self._error_came.notify_all()

    @property
    def error_text(self) -> str:
        return "".join(self.errors)

    def wait(self, timeout: float = DEADLINE_S) -> int:
        """Wait for the end and return the exit status."""
        code = self.process.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if not self.process.stdin.closed:
            self.wait()


class Program(_Child):
    """A program under observation: says "ready", waits for `go()`, then says what it did."""

    def __init__(
        self, command: Sequence[str | Path], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        mock = {
            "LD_LIBRARY_PATH": ground.library_path(),
            "MOCKCUDA_TRUTH": str(directory / "truth-%p.json"),
            "MOCKCUDA_STATE": "",
        }
        super().__init__(command, {**mock, **(environment or {})}, directory)
        self._truth = directory / f"truth-{self.pid}.json"

    def event(self, name: str, timeout: float = DEADLINE_S) -> dict[str, object]:
        """Return the next event, which must be of this name."""
        line = self._lines.get(timeout=timeout)
        assert line is not None, f"{self.command} ended before {name!r}: {self.error_text}"
        event: dict[str, object] = json.loads(line)
        assert event["event"] == name, f"{self.command} said {event}, not {name!r}"
        return event

    def ready(self, timeout: float = DEADLINE_S) -> None:
        self.event("ready", timeout)

    def go(self) -> None:
        """Let the next phase begin."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def run_phase(self, timeout: float = DEADLINE_S) -> dict[str, object]:
        """Let one phase run and return what the program says it did."""
        self.go()
        return self.event("phase", timeout)

    def finish(self) -> Truth:
        """Wait for a good end and return the truth of the whole run."""
        code = self.wait()
        assert code == 0, f"{self.command} ended with {code}: {self.error_text}"
        return Truth.read(self._truth)

    def truth_now(self) -> Truth:
        """Return the truth so far, of a program that is at rest."""
        self._truth.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + DEADLINE_S
        while not self._truth.exists():
            assert time.monotonic() < deadline, f"no truth from {self.command}"
            time.sleep(0.01)
        return Truth.read(self._truth)


class Agent(_Child):
    """`otel-gpu run`, from this tree."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        directory: Path,
        environment: Mapping[str, str] | None = None,
        *,
        within: Sequence[str | Path] = (),
    ) -> None:
        """`within` is a command that runs the agent's."""
        # The environment of whoever runs the tests must not choose where their data go.
        clean = {name: "" for name in os.environ if name.startswith("OTEL_")}
        super().__init__(
            [*within, sys.executable, "-m", "otel_gpu", "run", *arguments],
            {**clean, "PYTHONPATH": str(_ROOT), "OTEL_METRIC_EXPORT_INTERVAL": "500", **(environment or {})},
            directory,
        )

    def wait_for(self, pattern: str, timeout: float = DEADLINE_S) -> str:
        """Wait until a line on standard error matches, and return it."""
        wanted, deadline, seen = re.compile(pattern), time.monotonic() + timeout, 0
        with self._error_came:
            while True:
                for line in self.errors[seen:]:
                    if wanted.search(line):
                        return line
                seen = len(self.errors)
                assert self.process.poll() is None, f"the agent ended before {pattern!r}: {''.join(self.errors)}"
                assert time.monotonic() < deadline, f"no {pattern!r} from the agent: {''.join(self.errors)}"
                self._error_came.wait(0.1)

    def wait_attached(self, timeout: float = DEADLINE_S, driver: Path | None = None) -> None:
        """Wait until the probes are in the mock driver, or in a copy in that directory, and the rest is up."""
        self.wait_watching(timeout)
        self.wait_for(rf"attached \d+ probes to .*{re.escape(str(driver or ground.part('mock')))}/libcuda", timeout)

    def wait_watching(self, timeout: float = DEADLINE_S) -> None:
        """Wait until new processes are noticed."""
        self.wait_for("observing", timeout)

    def stop(self, timeout: float = DEADLINE_S) -> None:
        """End it with SIGTERM; the last interval is out when this returns."""
        self.process.send_signal(signal.SIGTERM)
        code = self.wait(timeout)
        assert code == 0, f"the agent ended with {code}: {self.error_text}"
        assert "Traceback" not in self.error_text, self.error_text
