"""Which pods does the API server, or the kubelet, say there are? Listed once, then heard of as they change.

What is asked of a cluster's API server by an agent on every node has to be little: the first list is what the server has in
memory, only this node's pods are asked for, and after a failure every agent waits for another time, each longer than
the last. While nobody answers, what is known stays known.
"""

from __future__ import annotations

import enum
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

import msgspec

from ...errors import OtelGpuError
from ...signals.structs import Frozen
from ...text import escaped
from .connection import Connections, RefusedError, UnreachableError
from .objects import UNREADABLE, Event, PodList, PodObject, Refusal, pod_of
from .pod import Pod
from .table import MAX_PODS, PodTable

_log = logging.getLogger(__name__)
_JITTER = random.Random()  # noqa: S311 - it only spreads load

WATCH_S = 300.0
"""For how long one watch is asked for; some are shorter by up to half, so that not all agents come back at once."""
_SILENT_S = 45.0
"""What a server may be late by at a watch's end."""
_POLL_S = 10.0
_PAGE = 250
_MAX_PAGES = MAX_PODS // _PAGE + 2
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0
_BRIEF_S = 1.0
"""A watch that ends sooner than that is not begun again at once."""

_LIST = msgspec.json.Decoder(PodList)
_EVENT = msgspec.json.Decoder(Event)
_POD = msgspec.json.Decoder(PodObject)
_REFUSAL = msgspec.json.Decoder(Refusal)


class Outcome(str, enum.Enum):
    """What became of a request."""

    ANSWERED = "answered"
    EXPIRED = "expired"
    """The server does not remember so far back: all is listed anew."""
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    MALFORMED = "malformed"


class Waits(Frozen):
    """How long it is waited after failures: for a random part of a time that doubles, half of it at least."""

    first_s: float = _FIRST_WAIT_S
    longest_s: float = _LONGEST_WAIT_S

    def after(self, failures: int) -> float:
        """Return how long to wait after so many in a row."""
        longest: float = min(self.longest_s, self.first_s * 2 ** min(failures - 1, 16))
        return longest * _JITTER.uniform(0.5, 1.0)


class PodWatch:
    """Keeps a table of pods up to date. `step` is called by one thread, everything else by any."""

    def __init__(
        self,
        connections: Connections,
        table: PodTable,
        node: str,
        *,
        namespace: str = "",
        is_kubelet: bool = False,
        waits: Waits = Waits(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Of a kubelet everything is asked again and again; it knows no watch."""
        self._connections = connections
        self._table = table
        self._node = node
        self._is_kubelet = is_kubelet
        self._path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._namespace = namespace
        self._waits = waits
        self._clock = clock
        self._version: str | None = None
        """From where to go on; None: all is listed."""
        self._was_listed = False
        self._failures = 0
        self._outcomes: Counter[Outcome] = Counter()
        self._heard_at: float | None = None
        self.trouble = ""
        self.listed = threading.Event()
        """Set once all pods are known, or once it is clear that they will not be soon."""

    def outcomes(self) -> Mapping[Outcome, int]:
        """Return how many requests came to what."""
        return {outcome: self._outcomes[outcome] for outcome in Outcome}

    @property
    def age_s(self) -> float | None:
        """For how long nothing has been heard while nobody answered; 0 while all is well, None before the first list."""
        if self._heard_at is None:
            return None
        return self._clock() - self._heard_at if self.trouble else 0.0

    def step(self) -> float:
        """List, or hear of changes until the server ends it; return how long to wait before the next step."""
        began = self._clock()
        try:
            if self._version is None:
                self._list()
                self._answered()
                return _POLL_S if self._is_kubelet else 0.0
            self._watch(self._version)
        except RefusedError as e:
            if e.status == 410:
                return self._expired()
            return self._failed(Outcome.REFUSED, self._refused(e))
        except UnreachableError as e:
            return self._failed(Outcome.UNREACHABLE, str(e))
        except UNREADABLE as e:
            self._version = None
            return self._failed(Outcome.MALFORMED, f"the answer cannot be read: {e}")
        except OtelGpuError as e:
            return self._failed(Outcome.UNREACHABLE, str(e))
        self._answered()
        return 0.0 if self._clock() - began > _BRIEF_S else self._waits.after(1)

    def _expired(self) -> float:
        self._version = None
        self._outcomes[Outcome.EXPIRED] += 1
        self._failures += 1
        # A server that says so again and again is not to be asked all the time.
        return self._waits.after(self._failures)

    def _list(self) -> None:
        # What the server has in memory will do at first; after that nothing older than what was known.
        asked = {} if self._was_listed else {"resourceVersion": "0"}
        found: dict[str, Pod] = {}
        version, more = "", ""
        for _ in range(_MAX_PAGES):
            path = "/pods" if self._is_kubelet else self._asking(limit=str(_PAGE), **asked)
            page = _LIST.decode(self._connections.get(path))
            for one in page.items or ():
                pod = self._taken(one)
                if pod is not None:
                    found[pod.uid] = pod
            version, more = page.metadata.resource_version, page.metadata.continue_
            if not more:
                break
            asked = {"continue": more}
        self._table.replace(found.values())
        self._was_listed = True
        self._version = None if self._is_kubelet else version or "0"

    def _watch(self, version: str) -> None:
        seconds = WATCH_S * _JITTER.uniform(0.5, 1.0)
        path = self._asking(
            watch="1", allowWatchBookmarks="true", resourceVersion=version, timeoutSeconds=str(int(seconds))
        )
        for line in self._connections.lines(path, seconds + _SILENT_S, self._heard):
            self._take_in(_EVENT.decode(line))
            self._heard()

    def _take_in(self, event: Event) -> None:
        if event.type == "ERROR":
            refusal = _REFUSAL.decode(event.object)
            raise RefusedError(refusal.code, refusal.message)
        found = _POD.decode(event.object)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            pod = self._taken(found)
            if pod is not None:
                (self._table.delete if event.type == "DELETED" else self._table.put)(pod)
        self._version = found.metadata.resource_version or self._version

    def _taken(self, found: PodObject) -> Pod | None:
        pod = pod_of(found)
        if pod is None:
            self._table.refuse()
        elif (pod.node and pod.node != self._node) or (self._namespace and pod.namespace != self._namespace):
            return None
        return pod

    def _asking(self, **parameters: str) -> str:
        return f"{self._path}?{urlencode({'fieldSelector': f'spec.nodeName={self._node}', **parameters})}"

    def _heard(self) -> None:
        self._heard_at = self._clock()
        self._failures = 0
        if self.trouble:
            _log.info("pods: %s answers again", self._connections.access.address)
            self.trouble = ""

    def _answered(self) -> None:
        self._outcomes[Outcome.ANSWERED] += 1
        self._heard()
        self.listed.set()

    def _failed(self, outcome: Outcome, why: str) -> float:
        self._outcomes[outcome] += 1
        self._failures += 1
        if not self.trouble and not self._connections.is_closed:
            _log.warning("pods: %s; what is known of them is kept, and it is tried again", escaped(why, 600))
        self.trouble = why
        self.listed.set()
        return self._waits.after(self._failures)

    def _refused(self, error: RefusedError) -> str:
        access = self._connections.access
        match error.status:
            case 401:
                return (
                    f"{access.address} does not know the credentials of {access.whence} (401): they have expired, or are another "
                    "cluster's; they are read anew each time"
                )
            case 403 if self._is_kubelet:
                return (
                    f"{access.address} refuses (403: {error}); give the service account a ClusterRole with the rule "
                    '{apiGroups: [""], resources: [nodes/pods], verbs: [get]}, of older kubelets nodes/proxy'
                )
            case 403:
                kind = "Role" if self._namespace else "ClusterRole"
                return (
                    f"{access.address} refuses (403: {error}); give the service account a {kind} with the rule "
                    '{apiGroups: [""], resources: [pods], verbs: [list, watch]}'
                )
        return f"{access.address} refuses ({error.status}: {error})"
