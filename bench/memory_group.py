"""What does an agent do in a control group with little memory? Groups below this process's own, of cgroup v1 or v2."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.ground import UnavailableError

_DEADLINE_S = 10.0
_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group that limits memory, kernel memory included."""

    directory: Path

    @property
    def is_v1(self) -> bool:
        return (self.directory / "memory.limit_in_bytes").exists()

    def entering(self, *command: str | Path) -> list[str]:
        """Return a command that runs another one in the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.directory / "cgroup.procs"), *map(str, command)]

    def peak_bytes(self) -> int:
        """Return how much was taken at the most."""
        return self._number("memory.max_usage_in_bytes" if self.is_v1 else "memory.peak")

    def _number(self, name: str) -> int:
        return int((self.directory / name).read_text(encoding="ascii"))


@contextmanager
def memory_group(limit_bytes: int | None) -> Iterator[MemoryGroup]:
    """Make a group for a while; UnavailableError where that cannot be."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    parent = _V1 / own["memory"].lstrip("/") if "memory" in own else _V2 / own.get("", "/").lstrip("/")
    group = MemoryGroup(parent / f"otel-gpu-{os.getpid()}-{time.monotonic_ns()}")
    try:
        group.directory.mkdir()
        if limit_bytes is not None:
            name = "memory.limit_in_bytes" if group.is_v1 else "memory.max"
            (group.directory / name).write_text(str(limit_bytes), encoding="ascii")
    except OSError as e:
        raise UnavailableError(f"no control group for memory can be made in {parent}: {e.strerror}") from e
    try:
        yield group
    finally:
        _remove(group.directory)


def _remove(directory: Path) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:  # the last process is about to end
            if time.monotonic() > deadline:
                return
            time.sleep(0.1)
