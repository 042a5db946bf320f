"""What went wrong, in a measurement that says whether the agent holds?"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


def tell(faults: Iterable[str], most: int | None = None) -> int:
    """Print them, or `most` of them, and return the exit code: 1 where there is any."""
    told = list(islice(faults, most))
    for fault in told:
        print(f"FAULT: {fault}")
    return 1 if told else 0
