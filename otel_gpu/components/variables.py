"""What does an OTEL_* variable say? OpenTelemetry's specification, read to the letter.

An empty variable is an unset one, and timeouts and intervals are milliseconds. A value that cannot be
understood is as if it were unset, and noted: a variable is set for a whole fleet, and must not stop one program of it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..text import one_line
from .values import nearest

_HOST = re.compile(r"[\w.-]{1,253}")
_MAX_SHOWN = 100
_MAX_LISTED = 100
"""Members of a list that are looked at."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables, with typed questions on them."""

    values: Mapping[str, str]
    ignored: dict[str, str] = field(default_factory=dict, compare=False)
    """What was wrong with variables that were asked for and are ignored, by name."""

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
            self.ignore(name, f"{_shown(text)} is no number of milliseconds; 10000 means 10 seconds")
            return None
        return value / 1000

    def number(self, name: str, valid: range) -> int | None:
        """Return the number that a variable says."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or int(text[:20]) not in valid:
            self.ignore(name, f"{_shown(text)} is no number from {valid.start} to {valid.stop - 1}")
            return None
        return int(text)

    def host(self, name: str) -> str | None:
        """Return the host name or address that a variable says, an address of IPv6 in brackets."""
        text = self.text(name)
        if text is None:
            return None
        bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        if _HOST.fullmatch(bare):
            return bare
        try:
            ipaddress.IPv6Address(bare)
        except ValueError:
            self.ignore(name, f"{_shown(text)} is no host; write a name or an address, such as localhost or ::1")
            return None
        return f"[{bare}]"

    def choice(self, name: str, valid: Mapping[str, str]) -> str | None:
        """Return what `valid` says for the variable's value, in any case."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in valid:
            self.ignore(name, f"{_shown(text)} is not supported; {nearest(text.lower()[:_MAX_SHOWN], valid)}")
            return None
        return valid[text.lower()]

    def listed(self, name: str, valid: Collection[str]) -> tuple[str, ...] | None:
        """Return the members of a list that are valid, without `none`; None when it says nothing that is."""
        text = self.text(name)
        if text is None:
            return None
        members = [member.strip().lower() for member in text.split(",", _MAX_LISTED)[:_MAX_LISTED] if member.strip()]
        known = [member for member in members if member == "none" or member in valid]
        if unknown := [member for member in members if member not in known]:
            first = unknown[0][:_MAX_SHOWN]
            self.ignore(name, f"{_shown(first)} is not supported; {nearest(first, {*valid, 'none'})}")
        return tuple(dict.fromkeys(member for member in known if member != "none")) if known else None

    def flag(self, name: str) -> bool | None:
        """Return whether a variable is `true`; every other value is false, as the specification has it."""
        text = self.text(name)
        if text is not None and text.lower() not in ("true", "false"):
            self.ignore(name, f"{_shown(text)} is neither true nor false, and taken for false")
        return None if text is None else text.lower() == "true"

    def ignore(self, name: str, why: str) -> None:
        """Note that what a variable says is ignored; once, however often it is asked for."""
        self.ignored.setdefault(name, why)


def _shown(text: str) -> str:
    return repr(one_line(text[:_MAX_SHOWN]))
