"""When do programs start, map code and end? The kernel's perf records, read in batches.

A dummy perf event on each CPU delivers exec, exit and executable-mapping records of every process. It costs
the observed programs nothing that counts, needs no BPF program and no tracefs, and works on every kernel
that runs the rest. Records of one batch are handed out in the order of time.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import struct
import time

from ..bpf.perf_event import DUMMY, SOFTWARE, PerfEventAttributes, open_on_each_cpu, right
from ..errors import OtelGpuError, UnsupportedKernelError
from ..runtime.shortage import memory_advice
from ..signals.structs import Frozen

_SAMPLE_TIME = 4
_FLAGS = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 14 | 1 << 18 | 1 << 23 | 1 << 24 | 1 << 25
"""mmap, comm, task, watermark, sample_id_all, mmap2, comm_exec, use_clockid."""
_LOST, _COMM, _EXIT, _FORK, _MMAP2 = 2, 3, 4, 7, 10
_MISC_COMM_EXEC = 1 << 13
_DATA_HEAD, _DATA_TAIL = 1024, 1032
_RING_PAGES = 64
_PROT_EXEC = 4
_SETTLE_S = 0.003
"""How long a wake-up waits for more records: one round of work for a whole program start."""
_BUSY_SETTLE_S = 0.02
"""The same while the last round was less than this ago: a host that starts programs all the time."""


class Mapped(Frozen):
    """A process mapped a file executable."""

    pid: int
    start: int
    end: int
    offset: int
    device: tuple[int, int]
    inode: int
    generation: int
    """Of the inode: tells it from others that had its number before, where the file system keeps such; else 0."""
    path: bytes
    when_ns: int
    """By the monotonic clock."""


class Executed(Frozen):
    """A process started another program."""

    pid: int
    comm: str


class Forked(Frozen):
    """A process was made, a copy of its parent."""

    pid: int
    parent: int


class Exited(Frozen):
    """The first thread of a process ended, and most likely the process."""

    pid: int


class Lost(Frozen):
    """The kernel dropped records: look at everything again."""

    count: int


Event = Mapped | Executed | Forked | Exited | Lost


class ProcessEvents:
    """A subscription to the process events of the whole system."""

    def __init__(self) -> None:
        """Subscribe on every CPU; UnsupportedKernelError where that is not allowed."""
        self._rings: list[_Ring] = []
        self._poll = select.poll()
        self._last_round = 0.0
        self._interrupted = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._interrupted, select.POLLIN)
        attributes = PerfEventAttributes(
            type=SOFTWARE,
            config=DUMMY,
            sample_type=_SAMPLE_TIME,
            flags=_FLAGS,
            wakeup=1,
            clock=time.CLOCK_MONOTONIC,
        )
        try:
            for fd in open_on_each_cpu(attributes):
                self._add_ring(fd)
        except OSError as e:
            self.close()
            raise UnsupportedKernelError(f"process events cannot be observed: {e.strerror}; {right()}") from e
        except OtelGpuError:
            self.close()
            raise

    def _add_ring(self, fd: int) -> None:
        try:
            ring = _Ring(fd)
        except OSError as e:
            os.close(fd)
            advice = memory_advice()
            if e.errno == errno.EPERM:
                advice = (
                    "raise the limit of locked memory (ulimit -l unlimited, LimitMEMLOCK=infinity), or "
                    "kernel.perf_event_mlock_kb, which all events of this user share, or give CAP_IPC_LOCK"
                )
            raise OtelGpuError(f"there is no memory for process events: {e.strerror}; {advice}") from e
        self._rings.append(ring)
        self._poll.register(fd, select.POLLIN)

    def close(self) -> None:
        """Unsubscribe; idempotent."""
        while self._rings:
            self._rings.pop().close()
        if self._interrupted >= 0:
            os.close(self._interrupted)
            self._interrupted = -1

    def interrupt(self) -> None:
        """Have `wait` return at once; from any thread."""
        if self._interrupted >= 0:
            os.eventfd_write(self._interrupted, 1)

    def wait(self, timeout_s: float) -> list[Event]:
        """Return what happened, in order of time; empty after `timeout_s` without events, or when it is interrupted."""
        if not any(fd != self._interrupted for fd, _ in self._poll.poll(timeout_s * 1000)):
            return []
        time.sleep(_BUSY_SETTLE_S if time.monotonic() - self._last_round < _BUSY_SETTLE_S else _SETTLE_S)
        self._last_round = time.monotonic()
        stamped: list[tuple[int, Event]] = []
        for ring in self._rings:
            stamped.extend(ring.drain())
        stamped.sort(key=lambda pair: pair[0])
        return [event for _, event in stamped]


class _Ring:
    """The record buffer of one CPU."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._size = _RING_PAGES * self._page
        self._memory = mmap.mmap(fd, self._page + self._size)

    def close(self) -> None:
        self._memory.close()
        os.close(self._fd)

    def drain(self) -> list[tuple[int, Event]]:
        (head,) = struct.unpack_from("<Q", self._memory, _DATA_HEAD)
        (tail,) = struct.unpack_from("<Q", self._memory, _DATA_TAIL)
        data = self._copy(tail, head)
        struct.pack_into("<Q", self._memory, _DATA_TAIL, head)
        events, at = [], 0
        while at + 8 <= len(data):
            kind, misc, size = struct.unpack_from("<IHH", data, at)
            if size < 16:
                break
            (when,) = struct.unpack_from("<Q", data, at + size - 8)
            if (event := decode(kind, misc, data[at + 8 : at + size - 8], when)) is not None:
                events.append((when, event))
            at += size
        return events

    def _copy(self, tail: int, head: int) -> bytes:
        start, length = tail % self._size, head - tail
        first = min(length, self._size - start)
        base = self._page
        return self._memory[base + start : base + start + first] + self._memory[base : base + length - first]


def decode(kind: int, misc: int, body: bytes, when_ns: int) -> Event | None:
    """Return what a record tells; None for one that is of no interest, or of a process that has no pid here."""
    if kind == _MMAP2:
        pid, _tid, start, length, offset, major, minor, inode, generation, prot, _flags = struct.unpack_from(
            "<IIQQQIIQQII", body
        )
        if not prot & _PROT_EXEC or not inode or not pid:
            return None
        path = body[64:].split(b"\0", 1)[0]
        return Mapped(pid, start, start + length, offset, (major, minor), inode, generation, path, when_ns)
    if kind == _COMM:
        if not misc & _MISC_COMM_EXEC:
            return None
        (pid,) = struct.unpack_from("<I", body)
        if not pid:
            return None
        return Executed(pid, body[8:].split(b"\0", 1)[0].decode("utf-8", "replace"))
    if kind in (_EXIT, _FORK):
        pid, parent, tid, _ptid = struct.unpack_from("<IIII", body)
        if pid != tid or not pid:
            return None
        return Exited(pid) if kind == _EXIT else Forked(pid, parent)
    if kind == _LOST:
        return Lost(struct.unpack_from("<QQ", body)[1])
    return None
