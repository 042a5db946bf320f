"""Which container and which pod is a process in? Its control groups say it."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CONTAINER_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_POD_UID = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
_MAX_CGROUP = 4096


def paths(cgroups: Sequence[str]) -> list[str]:
    """Return the control groups that the lines of /proc/PID/cgroup name."""
    return [line[:_MAX_CGROUP].split(":", 2)[-1] for line in cgroups]


def container_id(cgroups: Sequence[str]) -> str | None:
    """Return the innermost container; None outside of any."""
    return next((ids[-1] for path in reversed(paths(cgroups)) if (ids := _CONTAINER_ID.findall(path))), None)


def pod_uid(cgroups: Sequence[str]) -> str | None:
    """Return the pod; None outside of any."""
    found = next((uid for path in reversed(paths(cgroups)) if (uid := _POD_UID.search(path))), None)
    return found.group(1).replace("_", "-") if found else None
