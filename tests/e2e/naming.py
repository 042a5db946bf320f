"""How many launches carry the name that the driver knows, how many none, and how many a wrong one?"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.comparison import LAUNCHES
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import DEADLINE_S
from tests.e2e.truth import Truth

_HANDLE = re.compile(r"\+0x[0-9a-f]+$")


@dataclass(frozen=True, slots=True)
class Naming:
    """Launches, by what became of their names."""

    launches: int
    named: int
    wrong: Counter[str]
    """Launches that a name has more than the driver counted."""

    @property
    def share(self) -> float:
        return self.named / self.launches if self.launches else 1.0


def of_launches(exported: Metrics, truth: Truth) -> Naming:
    """Compare direct launches."""
    return _compare(exported.by(LAUNCHES, "cuda.kernel.name"), truth.launches)


def of_graphs(exported: Metrics, truth: Truth) -> Naming:
    """Compare the kernels that graph launches executed."""
    return _compare(exported.by("gpu.cuda.graph.kernel.calls", "cuda.kernel.name"), truth.graphed)


def wait_exported(out: Path, truth: Truth, of: str = "the program") -> None:
    """Wait until all launches are exported: those of kernels whose names are looked for are held back for a minute."""
    deadline = time.monotonic() + 2 * DEADLINE_S
    while (done := read_metrics(out).of(truth.pid).total(LAUNCHES)) < truth.launches.total():
        assert time.monotonic() < deadline, f"{done} of {truth.launches.total()} launches of {of} were exported"
        time.sleep(0.05)


def _compare(by_name: Counter[str], truth: Counter[str]) -> Naming:
    assert by_name.total() == truth.total()
    named = Counter({name: int(n) for name, n in by_name.items() if not _HANDLE.search(name)})
    return Naming(truth.total(), named.total(), named - truth)


def arguments(directory: Path) -> list[str]:
    """Return the agent's arguments with which every kernel keeps the name that the driver has for it."""
    config = directory / "every-name.yaml"
    config.write_text("processors: {kernel_names: {top: 100000, demangle: off}}\n")
    return ["--config", str(config), "--output", f"file:{directory / 'out'}"]
