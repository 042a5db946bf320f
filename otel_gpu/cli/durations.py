"""How long does an option say? Seconds, with a unit or without."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..components.values import parse_duration
from ..errors import ConfigError

_SHORTEST_S = 0.1


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


def seconds_of(option: str) -> Callable[[str], float]:
    """Return what reads an option's time, and names the option where it is none."""

    def read(text: str) -> float:
        try:
            return seconds(text)
        except ConfigError as error:
            raise ConfigError(f"{option} {error}") from error

    return read


def duration_of(option: str) -> Callable[[str], float]:
    """Return what reads an option's time that is more than nothing."""
    read = seconds_of(option)

    def read_positive(text: str) -> float:
        value = read(text)
        if not value:
            raise ConfigError(f"{option} {text} is no time; leave it out, or give seconds, such as 10")
        return value

    return read_positive


duration = duration_of("--duration")


def interval(text: str) -> float:
    """Return what `--interval` says: long enough to be looked at."""
    value = seconds_of("--interval")(text)
    if value < _SHORTEST_S:
        raise ConfigError(f"--interval {text} is too short; 100ms is the least")
    return value
