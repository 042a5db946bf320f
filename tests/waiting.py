"""How does a test wait for what comes about elsewhere? Until it is there, and for so long at the most."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_S = 0.02


def until(condition: Callable[[], object], why: str | Callable[[], str] = "", timeout_s: float = 60) -> None:
    """Wait for a condition; `why` says what it means that it does not come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, why if isinstance(why, str) else why()
        time.sleep(_LOOK_S)
