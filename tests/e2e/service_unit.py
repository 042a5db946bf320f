"""What does a unit of systemd's ask for? Its [Service] section, and the system calls that its groups stand for."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

UNIT = Path(__file__).parent.parent.parent / "deploy" / "systemd" / "otel-gpu.service"

# systemd.exec(5), SystemCallFilter=: what an allow list always allows.
_ALWAYS = ("execve", "exit", "exit_group", "getrlimit", "rt_sigreturn", "sigreturn", "@default")
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Service:
    """The section's lines, in their order."""

    lines: tuple[tuple[str, str], ...]

    def all(self, key: str) -> list[str]:
        return [value for k, value in self.lines if k == key]

    def one(self, key: str) -> str:
        (value,) = self.all(key)
        return value

    def words(self, key: str) -> list[str]:
        return [word for value in self.all(key) for word in value.split()]

    def size(self, key: str) -> int:
        value = self.one(key)
        return int(value.rstrip("KMG")) * _SIZES.get(value[-1], 1)

    def allowed_calls(self) -> set[str]:
        """Return the names of the system calls that the filters leave."""
        allowed = _expanded(_ALWAYS)
        for line in self.all("SystemCallFilter"):
            if line.startswith("~"):
                allowed -= _expanded(line[1:].split())
            else:
                allowed |= _expanded(line.split())
        return allowed


def read(path: Path = UNIT) -> Service:
    section, lines = "", []
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            lines.append((key, value))
    return Service(tuple(lines))


def missing() -> str | None:
    """Return why a unit cannot be understood here."""
    return None if shutil.which("systemd-analyze") else "no systemd-analyze, which knows the groups of system calls"


def _expanded(words: Iterable[str]) -> set[str]:
    calls: set[str] = set()
    for word in words:
        calls |= _group(word) if word.startswith("@") else {word}
    return calls


@functools.cache
def _group(name: str) -> frozenset[str]:
    listing = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    return frozenset(_expanded(re.findall(r"^ {4}([@\w-]+)$", listing.stdout, re.MULTILINE)))
