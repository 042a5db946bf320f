"""Which container and which pod is a process in? Its control groups say it.

Who is root in a container may make groups below its own, whatever their names: the outermost pod, and the container right
below it, are those that the kubelet made. What lies below `user.slice` is any user's to name, and no pod.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_CONTAINER_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_POD_UID = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[/.:]|$)"
)
"""With systemd its dashes are underscores; that of a static pod has none."""
_OF_USERS = "/user.slice/"
_MAX_CGROUP = 4096


def paths(cgroups: Sequence[str]) -> list[str]:
    """Return the control groups that the lines of /proc/PID/cgroup name."""
    return [line[:_MAX_CGROUP].split(":", 2)[-1] for line in cgroups]


def container_id(cgroups: Sequence[str]) -> str | None:
    """Return the container: in a pod the one that is the pod's, else the innermost; None outside of any."""
    for path in reversed(paths(cgroups)):
        pod = _pod(path)
        ids = list(_CONTAINER_ID.finditer(path, pod.end() if pod else 0))
        if ids:
            return ids[0 if pod else -1].group(1)
    return None


def pod_uid(cgroups: Sequence[str]) -> str | None:
    """Return the pod, as the kubelet knows it; None outside of any."""
    found = next((pod for path in reversed(paths(cgroups)) if (pod := _pod(path))), None)
    return found.group(1).replace("_", "-") if found else None


def is_placed(cgroups: Sequence[str]) -> bool:
    """Say whether control groups are named from the top, so that they show the pod if there is one.

    From within a control group namespace, those beside its own are named by the way there: `/../cri-containerd-….scope`.
    """
    found = paths(cgroups)
    return bool(found) and not any(path.startswith("/..") for path in found)


def _pod(path: str) -> re.Match[str] | None:
    pod = _POD_UID.search(path)
    return None if pod is None or _OF_USERS in path[: pod.start() + 1] else pod
