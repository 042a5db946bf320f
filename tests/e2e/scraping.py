"""How does a real Prometheus scrape for a test, and what does it answer?"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.e2e.collector import free_ports
from tests.e2e.processes import DEADLINE_S

_CONFIG: dict[str, Any] = {"scrape_interval": "1s", "evaluation_interval": "1s"}


@dataclass(frozen=True)
class Answered:
    """One series of an answer."""

    labels: dict[str, str]
    value: float
    """Of a histogram its count."""


class Prometheus:
    """A Prometheus that scrapes targets of this host every second."""

    def __init__(
        self,
        binary: Path,
        directory: Path,
        targets: Sequence[str],
        *options: str,
        rules: Sequence[Path] = (),
        scrape: dict[str, object] | None = None,
    ) -> None:
        directory.mkdir()
        config = directory / "prometheus.yml"
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._log = directory / "log"
        job = {
            "job_name": "otel",
            "honor_labels": True,
            "static_configs": [{"targets": list(targets)}],
            **(scrape or {}),
        }
        config.write_text(
            json.dumps({"global": _CONFIG, "rule_files": [str(rule) for rule in rules], "scrape_configs": [job]})
        )
        command = [
            binary,
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            *options,
        ]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)

    def __enter__(self) -> Prometheus:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                if answer.status == 200:
                    return self
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)

    def query(self, promql: str) -> list[Answered]:
        """Return what a query gives now."""
        found = self.ask("query", query=promql)["result"]
        return [Answered(one.get("metric", {}), _value(one)) for one in found if isinstance(one, dict)]

    def ask(self, what: str, **parameters: str) -> Any:
        """Return what the API answers; a refusal fails the test."""
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error


def _value(one: dict[str, Any]) -> float:
    return float(one["value"][1] if "value" in one else one["histogram"][1]["count"])


_FUNCTIONS = {"avg_over_time", "min_over_time", "last_over_time", "histogram_sum", "histogram_count"}


def names_in(promql: str) -> set[str]:
    """Return the metrics that a query asks for: all of ours have more than one word."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", promql)
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    return {name for name in re.findall(r"[a-z][a-z0-9_:]*", bare) if "_" in name} - _FUNCTIONS
