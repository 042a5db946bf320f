"""What does an OTEL_* variable say? OpenTelemetry's specification, read to the letter.

An empty variable is an unset one, and timeouts and intervals are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import ConfigError
from .values import nearest


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables, with typed questions on them."""

    values: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """Return a variable's value; None when it is unset or empty."""
        return self.values.get(name, "").strip() or None

    def milliseconds(self, name: str) -> float | None:
        """Return the seconds that a variable in milliseconds says."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value <= 86_400_000:
            raise ConfigError(f"{name}: {text!r} is no number of milliseconds; 10000 means 10 seconds")
        return value / 1000

    def choice(self, name: str, valid: Mapping[str, str]) -> str | None:
        """Return what `valid` says for the variable's value, in any case."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in valid:
            raise ConfigError(f"{name}: {text!r} is not supported; {nearest(text.lower(), valid)}")
        return valid[text.lower()]

    def flag(self, name: str) -> bool | None:
        """Return whether a variable is `true`; every other value is false, as the specification has it."""
        text = self.text(name)
        return None if text is None else text.lower() == "true"
