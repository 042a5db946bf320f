"""How does the agent have strangers' files read? By children without rights, started when needed and gone when idle.

A piece of work is given files by name; the child opens them with the agent's rights, gives these up, reads, and answers. The
agent waits for each answer no longer than the work may take. What a child is stuck in, is its own: it is told to end,
and the agent goes on whether it can or not.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Generic, TypeVar

import msgspec

from ..errors import OtelGpuError
from ..runtime import isolated
from . import parser_child
from .confinement import USUAL, Limits
from .decoding import decode
from .files import File
from .parser_child import Kill, Prepare, Start
from .work import HEAD, MAX_DESCRIPTORS, Failed, FrameKind, Opened, Request, Service, Work, frame

_log = logging.getLogger(__name__)

A = TypeVar("A")
Q = TypeVar("Q")
R = TypeVar("R")

_START_S = 60.0
"""How long a child may take to be there, on a host that is as busy as can be."""
_OPEN_S = 5.0
"""How long a file may take to be opened: what takes longer lies behind something that does not answer."""
_MOST_WAITS = 20
"""So many times as long as is meant do answers take at most where a child waits for a CPU."""
_IDLE_S = 10.0
_END_S = 5.0
_FIRST = (
    "otel_gpu.discovery.libraries",
    "otel_gpu.discovery.process_context_work",
    "otel_gpu.discovery.process_info_work",
    "otel_gpu.sandbox.mappings",
)
"""The work on every host, which needs nothing else."""
_NEEDS = {
    "otel_gpu.probes.planning": (
        "capstone",
        "numpy.ma",
        "otel_gpu.probes.messages",
        "otel_gpu.probes.nccl",
        "otel_gpu.probes.nccl_streams",
        "otel_gpu.probes.profile",
        "otel_gpu.probes.torch",
    )
}
"""What work imports when it runs, where that is known: a child cannot import any more once it has given up its rights."""
_ALL_NEEDS = (
    "capstone",
    "lz4.block",
    "lzma",
    "numpy.ma",
    "zstandard",
    "otel_gpu.stacks.cpython.code",
    "otel_gpu.receivers.cuda.kernel_names.compiler_caches",
    "otel_gpu.receivers.cuda.kernel_names.constants_arm64",
    "otel_gpu.receivers.cuda.kernel_names.constants_x86",
    "otel_gpu.receivers.cuda.kernel_names.device_names",
    "otel_gpu.receivers.cuda.kernel_names.hip_kernels",
    "otel_gpu.receivers.cuda.kernel_names.memory_work",
    "otel_gpu.receivers.cuda.kernel_names.stub_work",
    "otel_gpu.receivers.cuda.kernel_names.stubs",
    "otel_gpu.receivers.inference.follow_work",
    "otel_gpu.receivers.inference.span_work",
    "otel_gpu.receivers.rdma.verbs_work",
    "otel_gpu.stacks.symbols.perf_map",
    "otel_gpu.stacks.symbols.symbol_work",
    "otel_gpu.stacks.unwind.table_work",
)
"""What all other work needs, together."""


class WorkError(OtelGpuError):
    """A piece of work did not come to its end."""


class StuckError(WorkError):
    """A child did not answer in time, or was ended by its limits."""


class RefusedError(WorkError):
    """Work ended with an error of its own: what it was given is not what it should be. `error` is the error's class."""

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(reason or error)
        self.error = error


class Parsers:
    """Starts children that read what strangers made. Safe to use from several threads; a context manager."""

    def __init__(self, modules: Sequence[str] = _FIRST) -> None:
        """Nothing is started before it is needed, or `start`.

        `modules` hold work that needs nothing else. What further work needs is imported once it is asked for: it takes
        several times as long as all else that a start does.
        """
        self._modules = modules
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._numbers = itertools.count()
        self._busy = 0
        self._idle: threading.Timer | None = None
        self._closed = False

    def __enter__(self) -> Parsers:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start the process that children are forked from, ahead of the first work."""
        with self._lock:
            self._started()

    def prepare(self, work: Work[A, R] | Service[A, Q, R]) -> None:
        """Have what a piece of work needs imported, ahead of the first work of that kind, without a wait."""
        with self._lock:
            line = self._started()
            with contextlib.suppress(OSError):  # the work itself says so, if it cannot be done
                line.send(msgspec.msgpack.encode(Prepare(self._needed(work.name))))

    def close(self) -> None:
        """End all children; idempotent. Work that is under way fails."""
        with self._lock:
            self._closed = True
            self._stop()

    def run(
        self,
        work: Work[A, R],
        files: Sequence[File],
        argument: A,
        *,
        given: Sequence[int] = (),
        limits: Limits = USUAL,
    ) -> Iterator[R]:
        """Yield the answers of a piece of work; WorkError where it does not come to its end."""
        with self.begin(work, files, argument, given=given, limits=limits) as job:
            yield from job.answers()

    def begin(
        self,
        work: Work[A, R] | Service[A, Q, R],
        files: Sequence[File],
        argument: A,
        *,
        given: Sequence[int] = (),
        limits: Limits = USUAL,
        keep: bool = False,
        execute: bool = False,
    ) -> Job[R]:
        """Begin a piece of work on files that a child opens, behind those `given` to it open.

        With `keep` the agent gets the descriptors as well (`Job.kept`); with `execute` the files are mapped as code is.
        """
        ours, theirs = socket.socketpair()
        try:
            number = self._send(theirs, given, limits, self._needed(work.name))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        request = Request(work.name, list(files), keep, execute, msgspec.msgpack.encode(argument))
        job = Job(self, number, ours, work.answer, limits)
        try:
            job.tell(FrameKind.REQUEST, msgspec.msgpack.encode(request))
        except BaseException:
            job.close()
            raise
        return job

    def ended(self, number: int, *, kill: bool) -> None:
        """Note that a job is over; with `kill`, its child is not."""
        with self._lock:
            self._busy -= 1
            if self._line is not None and kill:
                with contextlib.suppress(OSError):
                    self._line.send(msgspec.msgpack.encode(Kill(number)), socket.MSG_DONTWAIT)
            if not self._busy and self._line is not None:
                self._idle = threading.Timer(_IDLE_S, self._end_if_idle)
                self._idle.daemon = True
                self._idle.start()

    def _needed(self, work: str) -> tuple[str, ...]:
        return () if work.partition(":")[0] in self._modules else needed(work)

    def _send(self, theirs: socket.socket, given: Sequence[int], limits: Limits, modules: tuple[str, ...]) -> int:
        if len(given) >= MAX_DESCRIPTORS:
            raise WorkError(f"{len(given)} descriptors are more than one piece of work is given")
        with self._lock:
            number = next(self._numbers)
            message = msgspec.msgpack.encode(Start(number, limits, modules))
            descriptors = array.array("i", [theirs.fileno(), *given])
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            for attempt in (1, 2):
                line = self._started()
                try:
                    line.sendmsg([message], ancillary)
                    break
                except OSError as e:
                    self._stop()
                    if attempt == 2:
                        raise WorkError(f"no child can be started to read files: {e.strerror}") from e
            self._busy += 1
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
            return number

    def _started(self) -> socket.socket:
        if self._closed:
            raise WorkError("the agent is ending")
        if self._line is not None and self._server is not None and self._server.poll() is None:
            return self._line
        self._stop()
        if not sys.executable:
            raise WorkError("this program has no sys.executable by which a child could be started that reads files")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._server = subprocess.Popen(
                    isolated.command(parser_child.__name__, str(theirs.fileno()), *self._modules),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                    cwd="/",
                )
            except OSError as e:
                ours.close()
                raise WorkError(f"{sys.executable} cannot be started to read files: {e.strerror}") from e
        self._line = ours
        return ours

    def _end_if_idle(self) -> None:
        with self._lock:
            if not self._busy:
                self._stop()

    def _stop(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._server is not None:
            server, self._server = self._server, None
            try:
                server.wait(_END_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(_END_S)


def needed(work: str) -> tuple[str, ...]:
    """Return the modules that a child must have for a piece of work of that name."""
    module = work.partition(":")[0]
    return () if module in _FIRST else (module, *_NEEDS.get(module, _ALL_NEEDS))


class Job(Generic[R]):
    """A piece of work that is under way. Used by one thread at a time; a context manager."""

    def __init__(
        self,
        parsers: Parsers,
        number: int,
        line: socket.socket,
        answer: type[R],
        limits: Limits,
    ) -> None:
        self._parsers = parsers
        self._number = number
        self._line: socket.socket | None = line
        self._answer = answer
        self._limits = limits
        self._left = limits.answer_bytes
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self.is_confined = False
        """Whether all files are open, or not, and the work has begun."""
        self._is_done = False
        self._pid = 0
        self._received: list[int] = []
        self.opened: list[Opened] = []
        """What became of the files, in their order, as far as is known."""
        self.kept: dict[int, int] = {}
        """Descriptors, by the number of the file; whoever takes one out closes it."""

    def __enter__(self) -> Job[R]:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the work, and close the files that were not taken over; idempotent."""
        line, self._line = self._line, None
        if line is None:
            return
        line.close()
        for descriptor in (*self.kept.values(), *self._received):
            os.close(descriptor)
        self.kept.clear()
        self._received.clear()
        self._parsers.ended(self._number, kill=not self._is_done)

    def open(self) -> list[Opened]:
        """Wait until the files are open, or not, and return what became of them."""
        while not self.is_confined:
            kind, body = self._frame(_OPEN_S if self._pid else _START_S)
            if kind is FrameKind.CONFINED:
                self.is_confined = True
            elif kind is FrameKind.STARTED:
                self._pid = _decode(body, int)
            elif kind is FrameKind.OPENED:
                self.opened.append(_decode(body, Opened))
                if self._received:
                    self.kept[self.opened[-1].number] = self._received.pop()
            else:
                raise StuckError(f"a child said {kind.name} before its files were open")
        return self.opened

    def answers(self) -> Iterator[R]:
        """Yield the answers."""
        self.open()
        while True:
            kind, body = self._frame(self._limits.answer_s)
            if kind is FrameKind.DONE:
                self._is_done = True
                return
            yield self._answered(kind, body)

    def ask(self, question: object) -> R:
        """Return the answer of a service to a question."""
        self.open()
        self._left = self._limits.answer_bytes
        self.tell(FrameKind.ASK, msgspec.msgpack.encode(question))
        return self._answered(*self._frame(self._limits.answer_s))

    def tell(self, kind: FrameKind, body: bytes) -> None:
        """Send a frame."""
        line = self._line
        if line is None:
            raise StuckError("the work was given up")
        try:
            line.settimeout(self._limits.answer_s)
            line.sendall(frame(kind, body))
        except OSError as e:
            raise StuckError(f"a child does not take its work: {e}") from e

    def _answered(self, kind: FrameKind, body: bytes) -> R:
        if kind is not FrameKind.ANSWER:
            raise StuckError(f"a child said {kind.name} where it should have answered")
        return _decode(body, self._answer)

    def _frame(self, timeout_s: float) -> tuple[FrameKind, bytes]:
        """Return the next frame."""
        deadline = _Deadline(timeout_s, self._pid)
        size, kind = HEAD.unpack(self._exactly(HEAD.size, deadline))
        if size > self._left or not FrameKind.STARTED <= kind <= FrameKind.FAILED:
            raise StuckError(f"a child answered with {size} bytes of kind {kind}, which is more than it may")
        self._left -= size
        body = self._exactly(size, deadline)
        if kind == FrameKind.FAILED:
            self._is_done = True
            failed = _decode(body, Failed)
            raise RefusedError(failed.error, failed.reason)
        return FrameKind(kind), body

    def _exactly(self, size: int, deadline: _Deadline) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._part(min(size - len(data), 1 << 20), deadline)
            if not part:
                raise StuckError("a child ended before it was done: by its limits, or by what it read")
            data += part
        return bytes(data)

    def _part(self, size: int, deadline: _Deadline) -> bytes:
        line = self._line
        while not self._poll.poll(deadline.left_s() * 1000):
            if not deadline.left_s():
                raise StuckError("a child did not answer in time")
        # Another thread may give the work up meanwhile.
        if line is None:
            raise StuckError("the work was given up")
        try:
            if self.is_confined:
                return line.recv(size)
            # Descriptors are taken from a child that has not looked at anything of a stranger's yet, and from no other.
            data, descriptors, _, _ = socket.recv_fds(line, size, MAX_DESCRIPTORS)
        except ConnectionResetError:
            return b""
        except OSError as e:
            raise StuckError(f"the work was given up: {e}") from e
        self._received += descriptors
        return data


class _Deadline:
    """When must a child have answered? The time in which it waited for a CPU does not count."""

    def __init__(self, seconds: float, pid: int) -> None:
        self._pid = pid
        self._waited_s = 0.0
        self._waited_s = self._waits_s()
        now = time.monotonic()
        self._at = now + seconds
        self._last = now + seconds * _MOST_WAITS

    def left_s(self) -> float:
        """Return how long it has; 0 when the time is up."""
        now = time.monotonic()
        if now >= self._at:
            waited_s = self._waits_s()
            self._at = min(self._at + waited_s - self._waited_s, self._last)
            self._waited_s = waited_s
        return max(self._at - now, 0.0)

    def _waits_s(self) -> float:
        if not self._pid:
            return 0.0
        try:
            with open(f"/proc/{self._pid}/schedstat", "rb") as times:
                return int(times.read().split()[1]) / 1e9
        except (OSError, IndexError):  # it has ended, or the kernel does not say
            return self._waited_s


def _decode(body: bytes, kind: type[R]) -> R:
    try:
        return decode(body, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:  # a text that is no UTF-8 is a ValueError
        raise StuckError(f"a child's answer cannot be understood: {e}") from e
