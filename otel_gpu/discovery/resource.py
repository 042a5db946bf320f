"""Who is this process? Its OpenTelemetry resource: service, process, container, pod, host."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ..signals.metrics import AttributeValue, Resource, attributes
from ..signals.structs import Frozen
from ..text import escaped
from .containers import container_id, is_placed, pod_uid
from .host import host
from .instance_claims import InstanceClaims
from .instances import instance_of_process
from .process_info import ProcessInfo, Unread
from .program_names import name_of, service_name
from .resource_variables import MAX_VALUE, Cut, own_attributes
from .selection import EVERYTHING, FindPod, Selection, knows_no_pod

_log = logging.getLogger(__name__)

_MAX_PATH = 1024
"""Characters kept of a path or a command."""
_MAX_LOGGED = 100
"""Programs of which the log says what was cut; a host that starts liars all the time must not fill it."""
_POD = "k8s.pod.uid"
_MAX_UNDECIDED = 65_536
_OF_THE_HOST = ("host.", "os.", "cloud.", "k8s.cluster.", "k8s.node.")
"""What holds for all that runs here, so that what the operator says goes before what a process says."""


class Identity(Frozen):
    """Who a program is, and how much of what it says of itself was left out or shortened, by reason."""

    resource: Resource
    cuts: tuple[tuple[Cut, int], ...] = ()


def identify(info: ProcessInfo, of_host: Mapping[str, AttributeValue], shared: Mapping[str, str] = {}) -> Identity:
    """Return who a program is.

    What was observed goes before what the program says of itself, and that before `shared`, what the operator says of
    all that is observed, but for what this says of the host. service.name is what the program says, else its
    executable, else, for an interpreter, the script it runs, or the name of the ancestor that names it.
    """
    place = {key: value for key, value in shared.items() if key.startswith(_OF_THE_HOST)}
    observed: dict[str, AttributeValue] = {**of_host, **place, **_observed(info)}
    # Who is seen to be in no pod cannot say that it is in somebody's.
    no_pod = {} if _POD in observed or not is_placed(info.cgroups) else {_POD: ""}
    own = own_attributes(dict(info.variables), {**no_pod, **observed}, info.published)
    name = name_of(info.named_by) if info.named_by else service_name(info.executable or info.comm, info.arguments)
    named: dict[str, AttributeValue] = {
        "service.name": escaped(name, MAX_VALUE) or "unknown_service",
        "service.instance.id": instance_of_process(info.pid, info.start_ticks),
    }
    return Identity(Resource(attributes({**named, **shared, **dict(own.attributes), **observed})), own.cuts)


class Identities:
    """Says who programs are, and counts what was cut of their own words. Safe to use from several threads."""

    def __init__(self, shared: Mapping[str, str] = {}, selection: Selection = EVERYTHING) -> None:
        self._shared = dict(shared)
        self._selection = selection
        self._lock = threading.Lock()
        self._cuts: Counter[Cut] = Counter()
        self._unread: Counter[Unread] = Counter()
        self._logged = 0
        self._logged_unread = 0
        self._find_pod: FindPod = knows_no_pod
        self._claims = InstanceClaims()
        self._undecided: dict[Resource, ProcessInfo | None] = {}
        """Programs whose pod was not known when they were met; None for those that turned out to be wanted."""

    def ask_pods(self, find_pod: FindPod) -> None:
        """Take who knows pods."""
        self._find_pod = find_pod

    def is_selected(self, resource: Resource) -> bool:
        """Say whether a program is observed, as of now: its pod may have become known since it was met."""
        if resource.is_selected:
            return True
        if resource not in self._undecided:
            return False
        info = self._undecided[resource]
        if info is not None and self._selection.wants(info, self._find_pod):
            info = self._undecided[resource] = None
        return info is None

    @property
    def needs_users(self) -> bool:
        """Whether it depends on its user that a program is observed."""
        return self._selection.needs_users

    def forget(self, resource: Resource) -> None:
        """Drop what is remembered of a program whose series have ended."""
        self._undecided.pop(resource, None)
        self._claims.release(resource)

    def of_program(self, info: ProcessInfo) -> Resource:
        """Return the resource of a program, under an id of its own; to be asked once for each."""
        identity = identify(info, host(), self._shared)
        if not self._selection.wants(info, self._find_pod):
            resource = replace(identity.resource, is_selected=False)
            uid = pod_uid(info.cgroups) if self._selection.needs_pods else None
            if uid is not None and self._find_pod(uid) is None and len(self._undecided) < _MAX_UNDECIDED:
                resource = self._claimed(resource, info)
                self._undecided[resource] = info
            return resource
        if identity.cuts:
            self._count(info.pid, identity)
        if info.unread is not None:
            self._count_unread(info.pid, identity, info.unread)
        return self._claimed(identity.resource, info)

    def _claimed(self, resource: Resource, info: ProcessInfo) -> Resource:
        return self._claims.take(resource, instance_of_process(info.pid, info.start_ticks))

    def cuts(self) -> dict[Cut, int]:
        """Return how many attributes that programs said of themselves were left out or shortened, by reason."""
        with self._lock:
            return {cut: self._cuts[cut] for cut in Cut}

    def unread(self) -> dict[Unread, int]:
        """Return of how many programs it is not known with which arguments and variables they were started, by reason."""
        with self._lock:
            return {reason: self._unread[reason] for reason in Unread}

    def _count_unread(self, pid: int, identity: Identity, reason: Unread) -> None:
        with self._lock:
            self._unread[reason] += 1
            if reason not in (Unread.NO_ANSWER, Unread.TOO_MANY):
                return
            self._logged_unread += 1
            logged = self._logged_unread
        if logged <= _MAX_LOGGED:
            _log.warning(
                "process %d (%s): its command line and environment cannot be read (%s): its resource goes without%s",
                pid,
                dict(identity.resource.attributes)["service.name"],
                reason.value.replace("_", " "),
                "; further processes are only counted" if logged == _MAX_LOGGED else "",
            )

    def _count(self, pid: int, identity: Identity) -> None:
        with self._lock:
            self._cuts.update(dict(identity.cuts))
            self._logged += 1
            logged = self._logged
        if logged <= _MAX_LOGGED:
            reasons = ", ".join(f"{n} {cut.value.replace('_', ' ')}" for cut, n in identity.cuts)
            _log.warning(
                "process %d (%s): some of what it says of itself (OTEL_RESOURCE_ATTRIBUTES, process context) is left out or cut: %s%s",
                pid,
                dict(identity.resource.attributes)["service.name"],
                reasons,
                "; further processes are only counted" if logged == _MAX_LOGGED else "",
            )


def _observed(info: ProcessInfo) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {"process.pid": info.pid}
    if info.parent_pid is not None:
        found["process.parent_pid"] = info.parent_pid
    if info.executable:
        found["process.executable.path"] = escaped(info.executable, _MAX_PATH)
    if name := os.path.basename(info.executable) or info.comm:
        found["process.executable.name"] = escaped(name, MAX_VALUE)
    if info.arguments:
        found["process.command"] = escaped(info.arguments[0], _MAX_PATH)
    if (container := container_id(info.cgroups)) is not None:
        found["container.id"] = container
    if (pod := pod_uid(info.cgroups)) is not None:
        found[_POD] = pod
    return found
