"""What is placed between two rounds? Nothing, a rival's program or ours, on the same functions of the same file."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Protocol, runtime_checkable

import numpy as np

from bench import ground
from bench.ground import UnavailableError
from bench.target import Target
from otel_gpu.bpf.abi.rows import COUNTED_ROW, ROW_KEY
from otel_gpu.bpf.linker import ObjectLinker
from otel_gpu.bpf.links import Placement
from otel_gpu.bpf.maps import BpfMap
from otel_gpu.bpf.object import BpfObject
from otel_gpu.components.counting.shared import StackTables
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.probes.attach import AttachedLibrary, PlannedProbe, plan
from otel_gpu.probes.sites import Policy, SiteRules
from otel_gpu.probes.table import DRIVER
from otel_gpu.receivers.cuda.loading import CudaPrograms
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.receivers.cuda.rows import sums_of
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.sandbox.parsers import Parsers

Placed = AbstractContextManager[object]
RECORD_SIZE = 80 + 8  # and the ring's own header
_DRAIN_S = 0.002
_REPEATS = 3
_FOREIGN_S = 0.2
_DEADLINE_S = 60.0
_COPIES = 4


@runtime_checkable
class Counting(Protocol):
    """Something placed that knows how often it was hit: proof that its work was done."""

    @property
    def records(self) -> int: ...


def nothing() -> Placed:
    """Place nothing."""
    return contextlib.nullcontext()


def planned(library: Path, functions: Sequence[str], policy: Policy = "fast") -> list[PlannedProbe]:
    """Return where our probes of these functions go."""
    with ElfFile(library) as elf:
        hooks = [hook for hook in DRIVER if any(symbol in functions for symbol, _ in hook.symbols())]
        probes = plan(elf, hooks, SiteRules.here(policy))
    return [probe for probe in probes if probe.symbol in functions and probe.placeable]


class Ours:
    """Our programs, loaded once."""

    def __init__(self) -> None:
        self.parsers = Parsers()
        self._receiver = CudaReceiver(ProcessTable({}), self.parsers, CudaPrograms(map_entries=65_536))

    def close(self) -> None:
        self._receiver.close()
        self.parsers.close()

    @property
    def tables(self) -> StackTables:
        """The maps that profiles share."""
        return self._receiver.tables

    def counted(self) -> int:
        """Return how many calls there were."""
        return _Rows(self._receiver._object.map("rows")).records

    @contextmanager
    def on(self, library: Path, functions: Sequence[str], policy: Policy = "fast") -> Iterator[object]:
        """Place our probes of these functions."""
        probes = planned(library, functions, policy)
        attached = AttachedLibrary(str(library), probes, ObjectLinker(self._receiver._object), str(library))
        try:
            if attached.attached != len(functions):
                raise UnavailableError(f"attached {attached.attached} of {functions}: {attached.failures}")
            yield _Rows(self._receiver._object.map("rows"))
        finally:
            attached.close()


class _Rows:
    """Our count table, as proof."""

    def __init__(self, rows: BpfMap) -> None:
        self._rows = rows

    @property
    def records(self) -> int:
        """How many calls it holds."""
        _, values = self._rows.read(ROW_KEY, COUNTED_ROW)
        return int(sums_of(values)[:, 0].sum())


class Rivals:
    """The programs that ours is compared with, loaded once."""

    def __init__(self) -> None:
        # An absolute name leads out of the package's own directory of objects.
        self._object = BpfObject(str(ground.rivals()))
        self._linker = ObjectLinker(self._object)
        self._object.load(attach_type=self._linker.attach_type)

    def close(self) -> None:
        self._object.close()

    @contextmanager
    def empty(
        self, library: Path, functions: Sequence[str], policy: Policy = "fast", *, returns: bool = False
    ) -> Iterator[object]:
        """Place programs that do nothing where ours would be, and on the functions' returns if asked."""
        with contextlib.ExitStack() as links:
            if returns:
                links.callback(self._place("empty_return", library, functions, policy, at_return=True))
            links.callback(self._place("empty", library, functions, policy))
            yield links

    @contextmanager
    def reads(self, library: Path, functions: Sequence[str]) -> Iterator[object]:
        """Place the program that reads what has to be counted, and does nothing with it."""
        with contextlib.ExitStack() as links:
            links.callback(self._place("reads", library, functions, "fast"))
            yield links

    @contextmanager
    def record(self, library: Path, functions: Sequence[str], policy: Policy = "fast") -> Iterator[object]:
        """Place the program that sends a record for each call, with somebody to take them out."""
        with contextlib.ExitStack() as links:
            drain = links.enter_context(Drain(self._object.map("ring").fd, self._object.map("ring").max_entries))
            links.callback(self._place("record", library, functions, policy))
            yield drain

    def _place(
        self, program: str, library: Path, functions: Sequence[str], policy: Policy, *, at_return: bool = False
    ) -> Callable[[], None]:
        sites = [Placement(p.offset, 0) for p in planned(library, functions, policy) if p.offset is not None]
        return self.place(program, library, sites, at_return=at_return)

    def place(
        self, program: str, library: Path, sites: Sequence[Placement], *, at_return: bool = False
    ) -> Callable[[], None]:
        """Place a program at sites of a file, and return what takes it away."""
        return self._linker.place(program, str(library), sites, at_return=at_return).close


class Drain:
    """Takes records out of a ring and reads each word once: the least that a consumer does."""

    def __init__(self, fd: int, size: int) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        # kernel/bpf/ringbuf.c: the consumer's page, the producer's, then the data.
        self._consumer = mmap.mmap(fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0)
        self._producer = mmap.mmap(fd, page, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        # The data follow twice, so that no record is ever in two pieces.
        self._data = mmap.mmap(fd, 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=2 * page)
        self._size = size
        self._began = self._position()
        self.checksum = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-drain", daemon=True)

    @property
    def records(self) -> int:
        """How many records were sent since the start."""
        return (self._position() - self._began) // RECORD_SIZE

    def __enter__(self) -> Drain:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        for memory in (self._consumer, self._producer, self._data):
            memory.close()

    def _position(self) -> int:
        return int(struct.unpack_from("<Q", self._producer)[0])

    def _run(self) -> None:
        words = np.frombuffer(self._data, np.uint64)
        while not self._stop.wait(_DRAIN_S):
            (at,), until = struct.unpack_from("<Q", self._consumer), self._position()
            start = at % self._size // 8
            self.checksum += int(words[start : start + (until - at) // 8].sum())
            self._consumer[:8] = struct.pack("<Q", until)


def interleave(
    target: Target, library: Path, order: str, calls: int, rounds: int, variants: Mapping[str, Callable[[], Placed]]
) -> list[dict[str, float]]:
    """Return nanoseconds per call by variant, for rounds in which every variant has its turn.

    Rounds before or after which another agent's probes are in the library are not counted.
    """
    names = list(variants)
    measured: list[dict[str, float]] = []
    deadline = time.monotonic() + _DEADLINE_S
    while len(measured) < rounds:
        if time.monotonic() > deadline:
            if measured:
                break
            raise UnavailableError("another agent's probes are in the measured program: stop that agent")
        if target.is_probed(library):
            time.sleep(_FOREIGN_S)
            continue
        times = {}
        # Another one begins each time: what the machine does in the meantime should favour none.
        first = len(measured) % len(names)
        for name in names[first:] + names[:first]:
            with variants[name]() as placed:
                target.do(f"{order} {calls // 10}")
                times[name] = min(_once(target, f"{order} {calls}", placed) for _ in range(_REPEATS))
        if not target.is_probed(library):
            measured.append(times)
    return measured


def side_by_side(
    programs: Callable[[Path], Target], order: str, turns: int, variants: Mapping[str, Callable[[Path], Placed]]
) -> dict[str, float]:
    """Return nanoseconds per call by variant, also on a busy machine.

    Each variant is in place all the time, in programs of its own on copies of the driver of their own. They take turns that are
    shorter than the scheduler's. Of each program the fastest tenth counts, whom nobody disturbed; of a variant's programs
    the one in the middle, since where their pages lie makes a difference too.
    """
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        driver = ground.part("mock") / "libcuda.so.1"
        targets: list[tuple[str, Target]] = []
        for copy in range(_COPIES):
            for name, variant in variants.items():
                library = place / f"{name}-{copy}" / driver.name
                library.parent.mkdir()
                shutil.copy(driver, library)
                target = stack.enter_context(programs(library.parent))
                stack.enter_context(variant(library))
                targets.append((name, target))
                if name == "none" and target.is_probed(library):
                    raise UnavailableError("another agent's probes are in the measured program: stop that agent")
        taken: dict[int, list[float]] = {at: [] for at in range(len(targets))}
        for turn in range(turns):
            first = turn % len(targets)
            for at in [*range(first, len(targets)), *range(first)]:
                taken[at].append(targets[at][1].do(order).ns_per_call)
        fast = {at: sorted(times)[len(times) // 10] for at, times in taken.items()}
        return {name: median(fast[at] for at, (of, _) in enumerate(targets) if of == name) for name in variants}


def typical(rounds: Sequence[dict[str, float]], of: str, over: str) -> dict[str, float]:
    """Return the round whose ratio is the median: on a shared machine the whole round is slow or fast, not one variant."""
    return sorted(rounds, key=lambda times: times[of] / times[over])[len(rounds) // 2]


def _once(target: Target, order: str, placed: object) -> float:
    before = placed.records if isinstance(placed, Counting) else 0
    answer = target.do(order)
    if isinstance(placed, Counting) and placed.records - before < answer.calls:
        raise UnavailableError(f"{order}: {placed.records - before} of {answer.calls} calls were seen")
    return answer.ns_per_call
