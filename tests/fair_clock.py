"""How long did it take, as far as it is not the host's doing? A clock that stands while some process waits for a CPU.

What is promised within a time is promised where a CPU can be had. Beside other programs the clock hardly moves, and
what is asserted of it says little; on a quiet host it is any other clock.
"""

from __future__ import annotations

import time
from pathlib import Path


def starved_s() -> float:
    """Return for how long since the host's start some process has waited for a CPU; 0 where the kernel does not say."""
    try:
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("total=")[2]) / 1e6


def fair_s() -> float:
    """Return a time, in seconds, of which only differences mean anything."""
    return time.monotonic() - starved_s()
