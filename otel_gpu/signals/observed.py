"""Which attributes of a resource are observed, so that no process says them of itself?"""

from __future__ import annotations

import re

_PREFIXES = ("host.", "os.", "process.", "telemetry.")
_KEYS = frozenset({"container.id"})


def is_observed(key: str) -> bool:
    """Say whether a key is of what is observed, in whatever case."""
    lowered = key.lower()
    return lowered.startswith(_PREFIXES) or lowered in _KEYS


def plain(key: str) -> str:
    """Return what backends that know fewer characters make of a key: `host_name` would become `host.name` there."""
    return re.sub(r"[^a-z0-9]", "_", key.lower())
