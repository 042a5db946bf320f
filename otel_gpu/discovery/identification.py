"""Who is this program, while that is still being read? Whoever wants to know waits, for a while; then what is known has to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..signals.metrics import Resource
from ..signals.structs import Frozen
from .process_context_work import Value
from .process_info import ProcessInfo, Unread

_TIMEOUT_S = 5.0
"""Beyond what the reading of one process takes, on a host that is busy or has many."""


class Known(Frozen):
    """Who a program is, for good."""

    resource: Resource
    environment: Mapping[str, str] | None = None
    """The variables in which somebody is interested; None where they could not be read."""


class Identification:
    """Becomes known once. Safe to use from several threads."""

    def __init__(
        self, info: ProcessInfo, decide: Callable[[ProcessInfo], Resource], timeout_s: float = _TIMEOUT_S
    ) -> None:
        """`info` is what is known already; `decide` is called once, with all that is known in the end."""
        self._info = replace(info, unread=Unread.NO_ANSWER)
        self._decide = decide
        self._deadline = time.monotonic() + timeout_s
        self._lock = threading.Lock()
        self._complete = threading.Event()
        self._known: Known | None = None
        self.published: tuple[tuple[bytes, Value], ...] = ()
        """What it publishes of itself, as far as it was found."""

    @property
    def is_known(self) -> bool:
        """Whether it has been decided, so that nothing more is taken in."""
        return self._known is not None

    def supply(self, info: ProcessInfo, *, more_follows: bool = False) -> None:
        """Take in what was read; too late, or where more is known already, it changes nothing.

        Where `more_follows` this is what has to do if that does not come in time.
        """
        with self._lock:
            if info.unread is None or self._info.unread is not None:
                # The kernel's announcement of a program comes without these.
                user = info.user if info.user is not None else self._info.user
                self._info = replace(info, user=user, named_by=info.named_by or self._info.named_by)
        if not more_follows:
            self._complete.set()

    def supply_published(self, attributes: tuple[tuple[bytes, Value], ...]) -> None:
        """Take in what it publishes of itself; too late, it changes nothing."""
        with self._lock:
            self.published = attributes

    def get(self) -> Known:
        """Return who it is."""
        if self._known is None:
            self._complete.wait(max(self._deadline - time.monotonic(), 0))
            with self._lock:
                if self._known is None:
                    info = self._info
                    environment = None if info.unread is not None else dict(info.variables)
                    resource = self._decide(replace(info, published=self.published))
                    self._known = Known(resource, environment)
        return self._known
