"""What may stand in a configuration value? Durations, variables' references and lists, read strictly.

Every function raises ConfigError, which says what was wrong and what would be right; the caller's
`where` names the key or the variable.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from urllib.parse import unquote

from ..errors import ConfigError

Duration = str | int | float
"""Text with units, or seconds."""

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
_SECONDS = re.compile(r"\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_REFERENCE = re.compile(r"\$\$|\$\{(?P<body>[^{}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_PROVIDER = re.compile(r"[a-z]+:")
_MAX_PAIRS = 1_000


def parse_duration(duration: Duration, where: str) -> float:
    """Return the seconds that a duration such as `10s`, `1m30s`, `500ms` or `10` says."""
    text = "" if isinstance(duration, bool) else str(duration)
    if _SECONDS.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        raise ConfigError(
            f"{where}: {text!r} is no duration; write seconds, such as 10, or a unit, such as 10s, 500ms or 1m30s"
        )
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def expand(text: str, environ: Mapping[str, str], where: str) -> str:
    """Replace `${env:NAME}` and `${env:NAME:-default}` by what the environment says, and `$$` by `$`."""

    def replacement(match: re.Match[str]) -> str:
        body = match["body"]
        if body is None:
            return "$"
        variable = _VARIABLE.fullmatch(body)
        if variable is None:
            # What else stands there may be part of a password.
            provider = _PROVIDER.match(body)
            raise ConfigError(
                f"{where}: ${{{provider[0] if provider else ''}…}} is not understood; write ${{env:NAME}} or "
                "${env:NAME:-default}, and $$ for a dollar sign"
            )
        value = environ.get(variable["name"])
        if not value and variable["default"] is not None:
            return variable["default"]
        if value is None:
            raise ConfigError(
                f"{where}: the variable {variable['name']} is not set; "
                f"set it, or give a default: ${{env:{variable['name']}:-default}}"
            )
        return value

    return _REFERENCE.sub(replacement, text)


def parse_pairs(text: str, where: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of `key=value,key=value`, percent-decoded, as OTLP headers and resource attributes are written."""
    pairs = []
    for position, member in enumerate(text.split(","), 1):
        if not member.strip():
            continue
        key, equals, value = member.partition("=")
        if not equals or not key.strip():
            # It is not quoted: a header's value is a credential.
            raise ConfigError(
                f"{where}: member {position} is no key=value; separate pairs by commas, write a comma as %2C"
            )
        pairs.append((unquote(key.strip()), unquote(value.strip())))
        if len(pairs) > _MAX_PAIRS:
            raise ConfigError(f"{where}: more than {_MAX_PAIRS} pairs are not believable")
    return tuple(pairs)


def parse_endpoint(endpoint: str, example: str) -> tuple[str, int]:
    """Return host, empty for every address, and port of `HOST:PORT`; ConfigError, which shows an example, for what is none."""
    host, colon, port = endpoint.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port[:6]) > 65535 or "/" in host:
        raise ConfigError(
            f"endpoint: {endpoint!r} is no HOST:PORT; write one such as {example} or [::1]:{example.rpartition(':')[2]}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def nearest(name: str, valid: Collection[str]) -> str:
    """Return what to do about a name that is not valid: the nearest one, or all of them."""
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"valid are {', '.join(sorted(valid))}" if valid else "nothing can be set here"
