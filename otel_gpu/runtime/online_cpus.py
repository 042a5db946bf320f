"""Which CPUs of this host are online? Their numbers, as the kernel lists them.

`os.cpu_count()` is a count, which PYTHON_CPU_COUNT and `-X cpu_count` change; where a CPU in the middle is offline, the numbers go
beyond it.
"""

from __future__ import annotations

import os
import re

PATH = "/sys/devices/system/cpu/online"
_LIST = re.compile(r"\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*", re.ASCII)
_MOST = 1 << 16


def online_cpus() -> list[int]:
    """Return the numbers of the CPUs that are online; where the kernel does not list them, as many as Python counts."""
    try:
        with open(PATH) as file:
            text = file.read()
    except OSError:
        text = ""
    return parse(text) or list(range(os.cpu_count() or 1))


def parse(text: str) -> list[int]:
    """Return the numbers of a list such as `0-1,3,5-7`; none for what is no such list."""
    if not _LIST.fullmatch(text.strip()):
        return []
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), min(int(last or first), _MOST) + 1))
    return sorted(numbers)
