"""What do threads wait for that no probe has told of yet: since before it was there, or still?"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from ...bpf.abi.samples import ASKED
from ...bpf.iterators import ask_threads
from ...bpf.object import BpfObject
from ...bpf.records import struct_of
from ...errors import LoadError
from .sums import FRAME_SIZE, SAMPLE_HEAD

_log = logging.getLogger(__name__)
_SHARED = (
    "off_cpu_waits",
    "sampled_threads",
    "programs",
    "used_by_all",
    "events",
    "losses",
    "unwind_rows",
    "unwind_mappings",
    "unwind_processes",
)
_ZERO = bytes(4)
_ASKED = struct_of(ASKED)


class BlockedThreads:
    """Asks the kernel for the stacks of threads that wait. What was told once goes on counting from there."""

    def __init__(self, profile: BpfObject, needed: Collection[str]) -> None:
        """Load the needed programs beside those of profiles; LoadError where the kernel has no such (below 6.1)."""
        self._object = BpfObject("blocked")
        try:
            for name in _SHARED:
                self._object.share_map(name, profile.map(name))
            self._object.load(attach_type=lambda _name: None, needed=needed)
        except BaseException:
            self._object.close()
            raise
        self._programs = self._object.programs()
        self._asked = self._object.map("asked")

    def close(self) -> None:
        """Unload; idempotent."""
        self._object.close()

    def off_cpu(self, pid: int, shortest_ns: int) -> Iterator[bytes]:
        """Yield a record for each thread that is off its CPU now, for as long as no record has told of.

        A thread that is met for the first time is only remembered: nobody knows since when it waits.
        """
        yield from self._ask("blocked_off_cpu", pid, shortest_ns)

    def waits(self, pid: int) -> Iterator[bytes]:
        """Yield a record for each thread of a process that is in a call which waits for a device now."""
        yield from self._ask("blocked_wait", pid, 0)

    def threads(self, pid: int) -> Iterator[bytes]:
        """Yield a record for each thread of a process, with what it does now."""
        yield from self._ask("thread_stack", pid, 0)

    def _ask(self, program: str, pid: int, shortest_ns: int) -> Iterator[bytes]:
        self._asked.put(_ZERO, _ASKED.pack(pid, 0, shortest_ns))
        try:
            said = ask_threads(self._programs[program], pid=pid)
        except OSError as e:
            _log.debug("the threads of %d cannot be asked: %s", pid, e)
            return
        at = 0
        while at + SAMPLE_HEAD.size <= len(said):
            frames = SAMPLE_HEAD.unpack_from(said, at)[-1]
            end = at + SAMPLE_HEAD.size + frames * FRAME_SIZE
            yield said[at:end]
            at = end


WAITS = ("blocked_off_cpu", "blocked_wait")
STACKS = ("thread_stack",)


def blocked_threads(profile: BpfObject) -> BlockedThreads | None:
    """Return what asks for blocked threads; None, and a line that says so, where the kernel cannot."""
    try:
        return BlockedThreads(profile, WAITS)
    except LoadError as e:
        _log.warning("waits that do not end while being recorded are not shown: %s", e)
        return None
