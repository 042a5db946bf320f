"""What runs beside the observed programs? Clients of the server, and the view: processes that end with the demo."""

from __future__ import annotations

import ctypes
import re
import select
import signal
import subprocess
import time
from importlib.util import find_spec
from types import TracebackType

from ...runtime import isolated

_START_S = 30.0
_END_S = 3.0
_NEEDED = ("starlette", "uvicorn")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_PAGE = re.compile(rb"the page: (\S+)\nOTLP: gRPC at port (\d+)")


class BackgroundProcess:
    """A process of this package's. A context manager."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            isolated.command(module, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # A Ctrl-C at the terminal is for the demo alone.
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call that takes no lock
        )

    def __enter__(self) -> BackgroundProcess:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def said(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """Return what it says of itself; None where it ended, or says nothing, before."""
        assert self._process.stdout is not None
        data, deadline = b"", time.monotonic() + _START_S
        while (found := pattern.match(data)) is None:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = self._process.stdout.read1(4096) if ready else b""  # type: ignore[attr-defined]
            if not part:
                return None
            data += part
        return found

    def close(self) -> None:
        """End it; idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _end_with_parent() -> None:
    """Let the kernel end this process when the demo does, however that ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class DemoView(BackgroundProcess):
    """The embedded view, where it can be."""

    def __init__(self, *, usual_ports: bool) -> None:
        super().__init__("otel_gpu.__main__", "view", *(() if usual_ports else ("--port", "0", "--grpc-port", "0")))
        found = self.said(_PAGE)
        self.url = found[1].decode() if found is not None else ""
        self.grpc_port = int(found[2]) if found is not None else 0

    @property
    def is_there(self) -> bool:
        """Whether it listens."""
        return bool(self.url)


def missing() -> str:
    """Return why there can be no view here; empty where there can."""
    absent = [name for name in _NEEDED if find_spec(name) is None]
    return f"it needs {' and '.join(absent)}: pip install 'otel-gpu[view]'" if absent else ""


def start_view() -> DemoView | None:
    """Return the view at its usual ports, else at free ones; None where it does not start."""
    for usual_ports in (True, False):
        view = DemoView(usual_ports=usual_ports)
        if view.is_there:
            return view
        view.close()
    return None
