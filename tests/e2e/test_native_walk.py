from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from otel_gpu.bpf.abi.unwinding import RowKind
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.stacks.symbols.native import NativeSymbols
from tests.native_walk import NativeWalker, Stack

BUSY = """
import functools, hashlib, json, re, sys, threading
def work(ready):
    print("ready", flush=True) if ready else None
    while True:
        functools.reduce(lambda a, b: a + len(json.dumps([b] * 10)), range(50), 0)
        sorted([3, 2, 1] * 20, key=lambda x: -x); hashlib.sha256(b"x" * 9999).digest(); re.sub("a+", "b", "aaa" * 99)
threading.Thread(target=work, args=(False,), daemon=True).start()
work(True)
"""
HANDLING = """
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
def handle(number):
    print("ready", flush=True)
    time.sleep(60)
callback = ctypes.CFUNCTYPE(None, ctypes.c_int)(handle)
libc.signal(signal.SIGUSR1, callback)
os.kill(os.getpid(), signal.SIGUSR1)
"""

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="unwinding tables are made for x86-64 only")


@contextmanager
def running(program: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.kill()


def walk(walker: NativeWalker, pid: int, tid: int) -> Stack:
    try:
        return walker.walk(pid, tid)
    except PermissionError as e:
        pytest.skip(f"this host does not let a process trace its child: {e}")


def test_the_stacks_of_a_busy_interpreter_reach_the_threads_start() -> None:
    walker, ends, depths = NativeWalker(), Counter[str](), []

    with running(BUSY) as pid:
        for _ in range(60):
            for tid in map(int, os.listdir(f"/proc/{pid}/task")):
                stack = walk(walker, pid, tid)
                ends[stack.end] += 1
                depths.append(len(stack.frames))
            time.sleep(0.003)

    # All of them here; other builds of libc may have a few instructions without rules where a thread can be stopped.
    assert ends["OUTERMOST"] >= 0.99 * len(depths), ends
    assert len(depths) >= 100
    assert max(depths) >= 10


def test_a_stack_goes_on_behind_a_signal_handler() -> None:
    walker = NativeWalker()

    with running(HANDLING) as pid:
        time.sleep(0.05)
        stack = walk(walker, pid, pid)

    assert stack.is_complete
    at = [frame.kind for frame in stack.frames].index(RowKind.SIGNAL)
    behind = stack.frames[at + 1]
    with ElfFile(behind.path) as elf:
        symbols = NativeSymbols(elf)
        (found,) = symbols.index().find([behind.address])
        assert found is not None
        assert symbols.name(found.name) in ("kill", "__kill", "__GI_kill", "__GI___kill")
