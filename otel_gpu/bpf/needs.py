"""What does a component need of the host? A factory says it before anything is made: for rights, and for `otel-gpu doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..signals.structs import Frozen

if TYPE_CHECKING:
    from .link_mode import LinkMode


class Needs(Frozen):
    """What one component needs, as it is configured."""

    link: LinkMode | None = None
    """In which way it places probes, where its factory says that it does; None: as others do."""
    processes: bool = False
    """Whether it asks who other users' processes are; what places probes does that anyway."""
    written: tuple[str, ...] = ()
    """Files and directories that it writes; they need not be there yet."""
    read: tuple[str, ...] = ()
    """Files of the operator that it reads again while it runs, as keys and certificates are."""
    listens: tuple[str, ...] = ()
    """Where it listens, `HOST:PORT`."""
    endpoints: tuple[str, ...] = ()
    """Where it connects to, `HOST:PORT` or a URL, without credentials."""


NOTHING = Needs()


class Check(Frozen):
    """One thing of the host that was looked at."""

    check: str
    ok: bool
    required: bool
    """False: a part of the work can go on without it."""
    detail: str
    fix: str | None = None
    """What to do about it; None when there is nothing to do."""


def check(name: str, ok: bool, detail: str, fix: str, *, required: bool = True) -> Check:
    """Return a check whose fix is said only where it fails."""
    return Check(name, ok, required, detail, None if ok else fix)


def needs_nothing(*_: object) -> Needs:
    """Say so, of whatever settings."""
    return NOTHING


def checks_nothing(*_: object) -> Iterable[Check]:
    """Look at nothing."""
    return ()
