"""What is the owner of what is shown called?"""

from __future__ import annotations

from ...signals.metrics import Resource
from ...text import one_line


def title(resource: Resource) -> str:
    """Name a resource in a few words: the service and its pid, or else whatever identifies it."""
    known = dict(resource.attributes)
    service, pid = known.get("service.name"), known.get("process.pid")
    if service is None:
        return one_line(" ".join(f"{k}={v}" for k, v in resource.attributes), 120) or "(no resource)"
    return one_line(str(service), 120) + (f" (pid {pid})" if pid is not None else "")
