"""What is a fuzz target? A parser, what it may raise, and inputs to begin with.

A target takes any bytes. It raises nothing but what its caller is prepared for, and asserts that what comes out is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

FINDINGS = Path(__file__).parent / "findings"
"""Inputs that once broke a parser, by target."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser."""

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    errors: tuple[type[Exception], ...] = ()
    """What whoever calls the parser catches."""
    max_bytes: int = 4096

    def execute(self, data: bytes) -> None:
        """Run the parser on an input; any exception is a finding."""
        try:
            self.run(data)
        except self.errors:
            pass

    def findings(self) -> list[Path]:
        """Return the inputs that once broke it."""
        folder = FINDINGS / self.name
        return sorted(folder.iterdir()) if folder.is_dir() else []
