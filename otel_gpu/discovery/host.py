"""Which host is this? The attributes that every resource carries."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

from ..signals.metrics import AttributeValue

_MAX_ID = 64


def host() -> dict[str, AttributeValue]:
    """Return the attributes of this host."""
    return dict(_host())


@cache
def _host() -> tuple[tuple[str, str], ...]:
    found = {"host.name": platform.node(), "host.arch": _architecture(), "os.type": "linux"}
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with Path(path).open() as file:
                machine_id = file.read(_MAX_ID).strip()
        except OSError:
            continue
        if machine_id:
            found["host.id"] = machine_id
            break
    return tuple(found.items())


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
