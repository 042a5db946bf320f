"""How long does an option say? Seconds, with a unit or without."""

from __future__ import annotations

import math

from ..errors import ConfigError
from ..values import parse_duration


def seconds(text: str) -> float:
    """Return the seconds of `5`, `5s` or `500ms`; ConfigError for what is no time, or without end."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = parse_duration(text, "")
        except ConfigError:
            value = math.nan
    if not 0 <= value < math.inf:
        raise ConfigError(f"{text} is no time; give seconds, such as 10 or 0.5, or a unit, such as 500ms or 1m30s")
    return value


def duration(text: str) -> float:
    """Return what `--duration` says, which is more than nothing."""
    try:
        value = seconds(text)
    except ConfigError as error:
        raise ConfigError(f"--duration {error}") from error
    if not value:
        raise ConfigError(f"--duration {text} is no time; leave it out, or give seconds, such as 10")
    return value
