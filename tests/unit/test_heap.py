"""Does the agent hold little of what it has freed?"""

from __future__ import annotations

import os
import subprocess
import sys

from otel_gpu import heap

MANY, BYTES = 2_000, 20_000


def resident_bytes() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_was_freed_between_what_is_used_is_given_back() -> None:
    held = [bytes(BYTES) for _ in range(2 * MANY)]
    del held[::2]
    before = resident_bytes()

    heap.trim()

    assert resident_bytes() < before - MANY * BYTES / 2
    assert len(held) == MANY


def test_a_command_shares_heaps_between_its_threads() -> None:
    program = """
import ctypes, gc, re, sys, threading
from otel_gpu import heap
heap.share()
def work(): return [bytes(2_000) for _ in range(2_000)]
threads = [threading.Thread(target=work) for _ in range(16)]
for t in threads: t.start()
for t in threads: t.join()
ctypes.CDLL(None).malloc_stats()
assert gc.get_threshold()[0] > 700
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert 1 <= done.stderr.count("Arena ") <= 2
