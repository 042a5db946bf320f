"""How is the observed program started, told to work and to stop, and asked what it did?"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from types import TracebackType

from ...errors import OtelGpuError
from ...runtime import isolated
from .driver import DemoDriver

_TIMEOUT_S = 60.0


class Program:
    """The observed program, a process of its own. A context manager: it never outlives the demo."""

    def __init__(self, driver: DemoDriver, module: str) -> None:
        """Make its process, in which it starts at `load`: an agent that is there before misses nothing."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.module = module
        self.said = ""
        """What it told when it was ready."""
        self._command = isolated.command(module)
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _ && exec "$@"', "sh", *self._command],
            env={**os.environ, **driver.environment, "OTEL_SERVICE_NAME": module.rpartition(".")[2]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # A Ctrl-C at the terminal is for the demo alone.
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def load(self) -> None:
        """Let it start, and wait until it has mapped the driver; it calls nothing of it before `go`."""
        self._tell()
        self.said = self._line().decode().strip().partition(" ")[2]

    def go(self) -> None:
        """Let it work."""
        self._tell()

    def check(self) -> None:
        """Raise OtelGpuError when it has ended by itself."""
        if self._process.poll() is not None:
            raise self._failure()

    def finish(self) -> dict[str, int]:
        """Let it stop and return what it says it did; it stays until `close`, so that it can still be looked at."""
        self._tell()
        did: dict[str, int] = json.loads(self._line())
        return did

    def close(self) -> None:
        """End it; idempotent."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _tell(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _TIMEOUT_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise self._failure()
        return line

    def _failure(self) -> OtelGpuError:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        why = next((line for line in reversed(lines) if line.strip()), f"it did not answer in {_TIMEOUT_S:.0f} s")
        return OtelGpuError(
            f"the demo's program failed: {why}; see all of it with {' '.join(self._command)} </dev/null"
        )
