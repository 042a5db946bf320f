"""Can this number be a process to look at? Why not, and which number is meant instead, in one line."""

from __future__ import annotations

import itertools

from ..bpf.pid_namespace import is_first_pid_namespace
from ..errors import OtelGpuError, ProcessGoneError
from . import procfs

_KERNEL_THREAD = 0x0020_0000
"""PF_KTHREAD of the kernel's include/linux/sched.h, among the flags of /proc/PID/stat."""
_MAX_ELSEWHERE = 4


def require_process(pid: int) -> None:
    """Raise OtelGpuError where there is no such process, or none with code of its own, and say what to do."""
    reason = _why_not(pid)
    if reason is not None:
        raise OtelGpuError(reason)


def _why_not(pid: int) -> str | None:
    try:
        status = _status(pid)
        flags = int(procfs.read(pid, "stat").rpartition(b")")[2].split()[6])
    except ProcessGoneError:
        return f"process {pid} does not exist; {_elsewhere(pid)}"
    except (OSError, ValueError, IndexError):
        return None  # whoever may not look says so later, with the right that is missing
    process = int(status.get("Tgid", "0"))
    if process not in (0, pid):
        return f"{pid} is a thread of process {process} ({_name(process)}), no process; give {process}"
    if flags & _KERNEL_THREAD:
        return (
            f"{pid} is a thread of the kernel ([{status.get('Name', '?')}]), which has no code of a program; give the pid of "
            "a program, such as nvidia-smi or ps show it"
        )
    if not procfs.is_alive(pid):
        parent = int(status.get("PPid", "0"))
        return (
            f"process {pid} has ended (it is a zombie), so it has no stacks and no memory; only its parent, process {parent} "
            f"({_name(parent)}), has not asked yet how it ended; give a process that runs"
        )
    return None


def _status(pid: int) -> dict[str, str]:
    lines = procfs.read(pid, "status", 1 << 16).decode("utf-8", "replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _name(pid: int) -> str:
    try:
        return procfs.stat(pid).comm
    except (OSError, ProcessGoneError):
        return "unknown"


def _elsewhere(pid: int) -> str:
    """Say what else the number may mean: what a process is called within its container's pid namespace."""
    found = (host for host in procfs.pids() if _number_within(host) == pid)
    named = [f"{host} ({_name(host)})" for host in itertools.islice(found, _MAX_ELSEWHERE)]
    if named:
        return f"in a container's pid namespace {pid} is what is here process {' or '.join(named)}: give that number"
    if _is_private():
        return "this is a private pid namespace, and hides the processes outside; run on the host, or with docker --pid=host"
    return "look its number up with ps or nvidia-smi"


def _number_within(pid: int) -> int | None:
    """Return what number a process has in a pid namespace below this one."""
    try:
        numbers = _status(pid).get("NSpid", "").split()
        return int(numbers[-1]) if len(numbers) > 1 else None
    except (OSError, ProcessGoneError, ValueError):
        return None


def _is_private() -> bool:
    try:
        return not is_first_pid_namespace()
    except OSError:
        return False
