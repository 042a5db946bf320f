"""Which instance of its service is this? An id that no other has, and that stays as long as what it stands for.

As the conventions recommend: a UUID of version 5 in their namespace, of what tells one from all others.
"""

from __future__ import annotations

import uuid
from functools import cache
from pathlib import Path

from .host import host

_NAMESPACE = uuid.UUID("4d63009a-8d0f-11ee-aad7-4c796ed8e320")
"""Of `service.instance.id`: OpenTelemetry's semantic conventions, resource/service."""
_MAX_ID = 64


def instance_of_process(pid: int, start_ticks: int | None) -> str:
    """Return the id of a process; one that nobody else gets where it is not known when it began."""
    if start_ticks is None:
        return str(uuid.uuid4())
    return str(uuid.uuid5(_NAMESPACE, f"{_boot()}/{pid}/{start_ticks}"))


def instance_of_host() -> str:
    """Return the id of this host's hardware."""
    about = host()
    return str(uuid.uuid5(_NAMESPACE, f"hardware/{about.get('host.id') or about['host.name']}"))


@cache
def _boot() -> str:
    try:
        with Path("/proc/sys/kernel/random/boot_id").open() as file:
            return file.read(_MAX_ID).strip()
    except OSError:
        return instance_of_host()
