"""Which capabilities does what was asked for need, to begin with and to the end, and what is missing without each?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..bpf.features import probe
from ..bpf.link_mode import LinkMode, usable_mode
from ..bpf.needs import Needs
from ..components.values import parse_endpoint
from ..config.model import Config
from ..config.needs import needs, places_probes
from ..runtime.disk_cache import default_directory
from ..runtime.privileges import Capability, held, without
from ..signals.structs import Frozen

LOAD = frozenset({Capability.CAP_BPF, Capability.CAP_PERFMON})
"""To load programs, sample the CPU, and hear of processes that start, map and end."""
READ = frozenset({Capability.CAP_SYS_PTRACE, Capability.CAP_DAC_READ_SEARCH, Capability.CAP_CHECKPOINT_RESTORE})
"""To look at processes of other users, for as long as they are observed."""
PART = frozenset({Capability.CAP_SETUID, Capability.CAP_SETGID, Capability.CAP_KILL})
"""By which root's children that read what strangers made become nobody, who owns nothing, and are ended.

For as long as they open files that a program's compilers keep, they become that program's user.
"""
GIVE = frozenset({Capability.CAP_CHOWN})
"""By which root gives a file to the user who became root."""
SERVICE = LOAD | READ
"""What a service needs, where the kernel lets these place probes."""
_FREE_PORTS = 1024
"""From here on everybody may listen."""

_WITHOUT = {
    Capability.CAP_SYS_PTRACE: "processes of other users are not observed, or lack names, environment and Python's frames",
    Capability.CAP_DAC_READ_SEARCH: "the memory, the environment and private files of other users' processes cannot be "
    "read, so that kernels, services and stacks may lack their names",
    Capability.CAP_CHECKPOINT_RESTORE: "a library that was replaced or deleted after a process of another user mapped it "
    "cannot be opened, so that this process may not be observed",
}


class Rights(Frozen):
    """What one run of a command needs."""

    beginning: frozenset[Capability]
    """Until everything is set up."""
    placing: frozenset[Capability]
    """To place further probes, to the end."""
    kept: frozenset[Capability]
    """For all the rest, to the end."""


def of_run(config: Config) -> Rights:
    """Return what the agent needs; UnsupportedKernelError where probes cannot be placed as it is configured."""
    wanted = [found for _, found in needs(config)]
    written = [path for found in wanted for path in found.written]
    if places_probes(config):
        needed = of_probes(next((found.link for found in wanted if found.link), "auto"), written)
    else:
        looks = any(found.processes for found in wanted)
        needed = Rights(frozenset(), frozenset(), (_reading() if looks else frozenset()) | _writing(written))
    opened = _opening([path for found in wanted for path in found.read])
    return replace(needed, kept=needed.kept | opened | _listening(config, wanted))


def of_probes(link: LinkMode = "auto", written: Iterable[str | os.PathLike[str]] = ()) -> Rights:
    """Return what it takes to place probes, and to write these files or directories."""
    features = probe()
    mode = usable_mode(link, features)
    # CAP_SYS_ADMIN is all that older ways of running containers know to give.
    loading = LOAD if held() >= LOAD else LOAD | {Capability.CAP_SYS_ADMIN}
    placing: set[Capability] = set()
    if mode != "multi":
        placing.add(Capability.CAP_SYS_ADMIN if features.perf_uprobe_needs_admin else Capability.CAP_PERFMON)
    if mode == "copies":
        placing |= loading
    kept = _reading() | _writing([*written, default_directory("unwind")])
    # Kernels before 5.11 count maps as locked memory, whose limit has to be raised for them.
    beginning = loading | placing | {Capability.CAP_SYS_RESOURCE}
    if features.perf_events_need_admin:
        beginning |= {Capability.CAP_SYS_ADMIN}
    return Rights(
        beginning=frozenset(beginning),
        placing=frozenset(placing),
        kept=kept if features.open_for_all else kept | {Capability.CAP_BPF},
    )


def of_inspection() -> Rights:
    """Return what it takes to look at one process; the kernel lists what others have placed with CAP_SYS_ADMIN only."""
    return Rights(frozenset({Capability.CAP_SYS_ADMIN}), frozenset(), _reading())


def shortfalls(rights: Rights, pids: Iterable[int] = ()) -> Iterator[str]:
    """Yield a sentence for each right that is not there and that observing these processes, or all, goes on without."""
    owners = {_owner(pid) for pid in pids}
    if owners and owners <= {os.geteuid()}:
        return
    for capability, what in _WITHOUT.items():
        if capability in rights.kept and capability not in held():
            yield f"without {capability.name} {what}; give it, or run as root"


def _reading() -> frozenset[Capability]:
    return READ | PART if os.geteuid() == 0 else READ


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _writing(places: Iterable[str | os.PathLike[str]]) -> frozenset[Capability]:
    """Return what it takes to write there: root needs a right of its own in a directory of somebody else's."""
    override = Capability.CAP_DAC_OVERRIDE
    with without(override):
        return frozenset() if all(map(_is_writable, places)) else frozenset({override})


def _opening(files: Iterable[str]) -> frozenset[Capability]:
    """Return what it takes to read the operator's files, keys and certificates, again for each connection."""
    read = Capability.CAP_DAC_READ_SEARCH
    with without(read, Capability.CAP_DAC_OVERRIDE):
        return frozenset() if all(os.access(f, os.R_OK, effective_ids=True) for f in files) else frozenset({read})


def _listening(config: Config, wanted: Iterable[Needs]) -> frozenset[Capability]:
    """Return what it takes to listen where the agent is asked something."""
    endpoints = [e.endpoint for e in config.extensions.values()] + [e for one in wanted for e in one.listens]
    ports = [port for endpoint in endpoints if (port := parse_endpoint(endpoint, endpoint)[1])]
    return (
        frozenset({Capability.CAP_NET_BIND_SERVICE}) if min(ports, default=_FREE_PORTS) < _FREE_PORTS else frozenset()
    )


def _is_writable(place: str | os.PathLike[str]) -> bool:
    path = os.path.abspath(place)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK, effective_ids=True)
