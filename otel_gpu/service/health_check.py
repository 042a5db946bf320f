"""Does the agent live, and is it ready? For whoever asks over HTTP, as the Collector's extension of this name answers."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

from ..config.settings import HealthCheckSettings
from ..exporters.http_listener import Answer, HttpListener, Request
from ..runtime.supervision import Health, Worker
from ..signals.structs import Frozen

_log = logging.getLogger(__name__)


class Report(Frozen):
    """How the agent is."""

    is_live: bool
    """Whether the thread that collects goes on: where it does not, a restart helps."""
    is_ready: bool
    """Whether programs are observed: from the end of the start to the beginning of the stop."""
    components: Sequence[Health]

    @property
    def is_good(self) -> bool:
        """Whether everything does its work."""
        return self.is_live and self.is_ready and all(c.is_good for c in self.components)


class HealthCheck:
    """Answers from construction to `close`, in a thread of its own."""

    def __init__(self, settings: HealthCheckSettings, report: Callable[[], Report]) -> None:
        """Listen; OtelGpuError where that cannot be."""
        self._path = settings.path.rstrip("/")
        self._report = report
        self._since = time.time()
        self._listener = HttpListener(
            "health_check",
            settings.endpoint,
            self._answer,
            trouble="health cannot be told",
            setting="extensions.health_check.endpoint",
        )
        host, port = self.address
        _log.info("health is told at http://%s:%d%s", f"[{host}]" if ":" in host else host, port, settings.path)

    @property
    def worker(self) -> Worker:
        """The thread that answers."""
        return self._listener.worker

    @property
    def address(self) -> tuple[str, int]:
        """The address and port that it listens on."""
        return self._listener.address

    def close(self) -> None:
        """Listen no longer; idempotent."""
        self._listener.close()

    def _answer(self, request: Request) -> Answer:
        report = self._report()
        states = {
            self._path: report.is_good,
            f"{self._path}/live": report.is_live,
            f"{self._path}/ready": report.is_ready,
        }
        if request.path not in states:
            return Answer(404)
        is_good = states[request.path]
        return Answer(200 if is_good else 503, json.dumps(self._body(report, is_good=is_good)).encode() + b"\n")

    def _body(self, report: Report, *, is_good: bool) -> dict[str, object]:
        since = datetime.fromtimestamp(self._since, timezone.utc)
        components: dict[str, dict[str, object]] = {}
        for health in report.components:
            told = components.setdefault(health.component, {"healthy": True, "failures": 0})
            told["healthy"] = bool(told["healthy"]) and health.is_good
            told["failures"] = int(str(told["failures"])) + health.failures
        return {
            "status": "Server available" if is_good else "Server not available",
            "upSince": since.isoformat(),
            "uptime": f"{time.time() - self._since:.0f}s",
            "live": report.is_live,
            "ready": report.is_ready,
            "components": components,
        }
