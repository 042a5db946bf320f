"""How long did devices work, between which bounds? What the kernel knows of them, as of now."""

from __future__ import annotations

import struct
import time
from collections import OrderedDict
from collections.abc import Collection, Container, Iterator, Mapping

import msgspec

from ...bpf.abi.busy import BUSY, BUSY_KEY, PERIOD_KIND, PERIOD_SUM
from ...bpf.maps import BpfMap
from ...bpf.records import names_before
from ...components.counting.device_time import BusyPeriod, BusyPeriodSum, DeviceTime, Parts
from ...discovery.processes import Process
from ...discovery.program_id import ProgramId
from ...signals.structs import Frozen

_MAX_PROCESSES = 4096


class BusyDelta(Frozen):
    """What the bounds of a device's busy time, for one program, grew by."""

    program: ProgramId
    device: int
    lower_ns: int
    upper_ns: int
    since_ns: int = 0
    """When it was read before, or the first submission."""
    period: BusyPeriod | None = None
    """The present one or, when the device is idle, the last; None unless stacks were taken of it."""
    kinds: Mapping[Parts, BusyPeriodSum] = msgspec.field(default_factory=dict)
    """Busy periods that began and ended since, as far as it is known what was done in them."""


_READ = names_before(BUSY, "noted")
"""What of struct busy the agent reads, as bounds() and present_period() take it; its rest is the kernel's own."""
_NOTHING = BusyPeriodSum(0, 0, 0)
_PROGRAM = struct.Struct("<II")
"""With which keys begin."""


class BusyTimes:
    """Keeps for each process what its devices' times grew by, until somebody takes it."""

    def __init__(self) -> None:
        self._times: OrderedDict[Process, dict[int, DeviceTime]] = OrderedDict()

    def grown(self, process: Process, delta: BusyDelta) -> None:
        """Add what a read of the table found."""
        devices = self._times.setdefault(process, {})
        self._times.move_to_end(process)
        time_ = devices.setdefault(delta.device, DeviceTime(delta.since_ns))
        time_.lower_ns += delta.lower_ns
        time_.upper_ns += delta.upper_ns
        if delta.period is not None:
            time_.add(delta.period)
        for parts, sum_ in delta.kinds.items():
            time_.kinds[parts] = time_.kinds.get(parts, _NOTHING).plus(sum_)
        if len(self._times) > _MAX_PROCESSES:
            self._times.popitem(last=False)

    def ended(self, process: Process, device: int, period: BusyPeriod) -> None:
        """Add a busy period that is over; to be called behind the `grown` that has its time."""
        if (devices := self._times.get(process)) is not None and device in devices:
            devices[device].add(period)

    def take(self) -> Mapping[Process, Mapping[int, DeviceTime]]:
        """Return what came together, by process and device, and begin anew."""
        taken, self._times = self._times, OrderedDict()
        return taken


class BusyReader:
    """Reads the kernel's table of devices, remembering what it said of each."""

    def __init__(self, table: BpfMap, kinds: BpfMap, since: BpfMap) -> None:
        self._table = table
        self._kinds = kinds
        self._since = since
        self._kinds_said: dict[bytes, BusyPeriodSum] = {}
        self._said: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._read_ns: dict[tuple[int, int, int], int] = {}

    def read(self, known: Container[ProgramId]) -> Iterator[BusyDelta]:
        """Yield what grew: time that goes on counts until now, but not for programs that are `known` no longer."""
        kinds = self._read_kinds()
        keys, values = self._table.read(BUSY_KEY, BUSY)
        now = time.monotonic_ns()
        self._since.put(bytes(4), now.to_bytes(8, "little"))
        for (tgid, exec_id, device, _), state in zip(keys.tolist(), values[_READ].tolist(), strict=True):
            lower, upper = bounds(now, *state[:6])
            key = (tgid, exec_id, device)
            if key in self._said and key[:2] not in known:
                continue
            lower_before, upper_before = self._said.get(key, (0, 0))
            since = self._read_ns.get(key, state[0])
            # A gap that is found only when it ends was counted as busy until then.
            self._said[key] = max(lower, lower_before), max(upper, upper_before)
            self._read_ns[key] = now
            grown = max(lower - lower_before, 0), max(upper - upper_before, 0)
            if any(grown):
                yield BusyDelta(
                    ProgramId(tgid, exec_id), device, *grown, since, present_period(now, *state[2:]), kinds.get(key, {})
                )

    def forget(self, programs: Collection[ProgramId]) -> None:
        """Drop programs that have ended, and are in the tables no longer."""
        for key in [k for k in self._said if k[:2] in programs]:
            del self._said[key], self._read_ns[key]
        for kind in [k for k in self._kinds_said if _PROGRAM.unpack_from(k) in programs]:
            del self._kinds_said[kind]

    def _read_kinds(self) -> dict[tuple[int, int, int], dict[Parts, BusyPeriodSum]]:
        found: dict[tuple[int, int, int], dict[Parts, BusyPeriodSum]] = {}
        keys, values = self._kinds.read(PERIOD_KIND, PERIOD_SUM)
        for i, value in enumerate(values.tolist()):
            raw, now = keys[i].tobytes(), BusyPeriodSum(*value)
            grown = now.plus(self._kinds_said.get(raw, _NOTHING), -1)
            self._kinds_said[raw] = now
            if grown.periods > 0:
                (tgid, exec_id, device, _), parts = keys[i].tolist()
                found.setdefault((tgid, exec_id, device), {})[
                    tuple((int(subject), int(calls)) for subject, calls in parts if calls)
                ] = grown
        return found


def bounds(
    now: int, first: int, idle: int, lower: int, idle_since: int, idle_submissions: int, submissions: int
) -> tuple[int, int]:
    """Return lower and upper bound of the nanoseconds of work since the first submission; see struct busy."""
    if not first:
        return 0, 0
    is_idle = idle_since and submissions == idle_submissions
    return lower, (idle_since if is_idle else now) - first - idle


def present_period(
    now: int,
    lower: int,
    idle_since: int,
    idle_submissions: int,
    submissions: int,
    first: int,
    opened: int,
    lower_before: int,
    sampled: int,
) -> BusyPeriod | None:
    """Return the busy period that goes on or, on an idle device, the last one, if stacks were taken of it."""
    if not first < sampled <= submissions:
        return None
    is_idle = idle_since and submissions == idle_submissions
    return BusyPeriod(first, submissions, opened, idle_since if is_idle else now, max(lower - lower_before, 0))
