"""Does the agent hold little of what it has freed?"""

from __future__ import annotations

import os
import subprocess
import sys

from otel_gpu.runtime import heap

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
from otel_gpu.runtime import heap
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


def test_a_command_gives_back_large_blocks_as_soon_as_they_are_free() -> None:
    program = """
import ctypes
from otel_gpu.runtime import heap
heap.share()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096
def fill(size):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    return block
# Of a large block that is freed glibc concludes that blocks of its size are better kept.
libc.free(fill(16 << 20))
before = resident()
blocks = [fill(4 << 20) for _ in range(2)]
kept = fill(4_000)
for block in blocks: libc.free(block)
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert int(done.stdout) < 1 << 20
