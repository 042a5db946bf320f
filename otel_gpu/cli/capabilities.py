"""Which capabilities does the command keep? Those that what it was asked for needs; what is missing of them it says."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable

from ..runtime import privileges
from ..service.rights import Rights, shortfalls

_log = logging.getLogger(__name__)


def keep_only(needed: Rights, arguments: argparse.Namespace, pids: Iterable[int] = ()) -> Rights:
    """Drop everything else, to observe these processes, or all; to be called before any thread is started.

    What only the beginning needs is held until `privileges.settle`. A program that calls `main` with arguments of its own
    keeps its rights.
    """
    for shortfall in shortfalls(needed, pids):
        _log.warning("%s", shortfall)
    if arguments.is_command:
        privileges.limit(needed.kept, needed.beginning)
    return needed
