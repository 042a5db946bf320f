"""Which processes have come of these, and run now?"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..errors import ProcessGoneError
from . import procfs


def descendants(pids: Iterable[int]) -> list[int]:
    """Return the processes that come of some, themselves left out, and this process with its children as well."""
    children: dict[int, list[int]] = {}
    for pid in procfs.pids():
        try:
            children.setdefault(procfs.stat(pid).parent, []).append(pid)
        except (OSError, ProcessGoneError):
            continue
    children.pop(os.getpid(), None)
    named = list(dict.fromkeys(pids))
    found = [*named]
    known = {*named, os.getpid()}
    for pid in found:  # which grows meanwhile
        new = [child for child in children.get(pid, ()) if child not in known]
        found += new
        known.update(new)
    return found[len(named) :]
