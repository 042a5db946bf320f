"""How is one profile of live processes taken? Receivers observe as an agent's do; what they give is handed to the caller."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ..bpf.abi.programs import Loss
from ..discovery.existence import require_process
from ..errors import OtelGpuError
from ..receivers.cuda.settings import CountingSettings, CudaSettings
from ..receivers.profiles.settings import ProfileSettings, RecordingSettings, counted
from ..sandbox.mappings import executable_mappings
from ..sandbox.parsers import Parsers
from ..signals.profiles import CPU, OFF_CPU, Profile, ProfileType, merge
from ..stacks.cpython.gil_reader import GilReader
from .awaited import AwaitedProcesses
from .ending import Ending
from .observation import Observation

if TYPE_CHECKING:
    from ..receivers.cuda.receiver import CudaReceiver
    from ..receivers.profiles.receiver import ProfileReceiver, Progress
    from ..receivers.profiles.sums import StackSample
    from ..signals.profiles import Stack

_log = logging.getLogger(__name__)
_SLICE_S = 0.25
_TABLES_S = 60.0
"""How long all unwinding tables of a recording's processes are waited for; they are kept for the next time."""
_READY_S = 30.0
"""How long a recording waits for what most stacks need; it begins without that then."""
_READY_LOOK_S = 0.02
_NAMES_S = 10.0
_COLLECT_S = 1.0
"""How often the last of processes that have ended is taken in, while others go on."""
_CLOSE_S = 4.0


class Recording:
    """Records profiles of one process, or of several together. A context manager."""

    def __init__(
        self,
        pids: int | Sequence[int],
        types: Sequence[ProfileType],
        cuda: CudaSettings | None = None,
        *,
        stacks_per_second: int = ProfileSettings().stacks_per_second,
        table_rows: int = ProfileSettings().table_rows,
        parsers: Parsers | None = None,
        follows_children: bool = False,
        cpu_hz: int = ProfileSettings().cpu_hz,
        shows_threads: bool = False,
    ) -> None:
        """Attach to the processes; OtelGpuError where that cannot be. `parsers` may have been started; they are closed here.

        Where it `follows_children` it records all that come of the processes as well, until the last of them has ended; those
        that use no GPU, in a recording of what is asked of GPUs, are not waited for long.
        """
        self._pids = (pids,) if isinstance(pids, int) else tuple(pids)
        settings = RecordingSettings(
            stacks_per_second=stacks_per_second,
            table_rows=table_rows,
            only=tuple(types),
            cpu_hz=cpu_hz,
            threads=shows_threads,
        )
        counting = CountingSettings(counted(settings), cuda or CudaSettings())
        self._observation = Observation(
            {"profile": settings},
            pids=self._pids,
            follows_children=follows_children,
            observes_at_once=follows_children,
            parsers=parsers,
            counting=counting,
        )
        self._is_of_gpus = any(kind.name not in (CPU.name, OFF_CPU.name) for kind in types)
        self._gpu_users: set[int] = set()
        self._awaited = AwaitedProcesses(self._pids, lambda pid: not self._is_of_gpus or pid in self._gpu_users)
        self._has_ended = threading.Event()
        self._gils: dict[int, GilReader] = {}
        self._collected_at = 0.0
        self._dropped_before = 0
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        for pid in self._pids:
            require_process(pid)
        observation = self._observation
        # While programs are loaded a child gets ready.
        observation.parsers.start()
        for pid in self._pids:
            observation.processes.observe(pid, late=True)
        observation.open()
        for pid in self._pids:
            self._require_readable(pid)
            observation.observe(pid)
        observation.watch(
            on_exit=lambda _process: self._has_ended.set(),
            on_attached=lambda process, _library, _mapped, _placed: self._gpu_users.add(process.pid),
        )

    @property
    def _cuda(self) -> CudaReceiver:
        receiver: CudaReceiver = self._observation.receivers["cuda"]  # type: ignore[assignment]
        return receiver

    @property
    def _profile(self) -> ProfileReceiver:
        receiver: ProfileReceiver = self._observation.receivers["profile"]  # type: ignore[assignment]
        return receiver

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Detach, within the time given whatever hangs; idempotent."""
        ending = Ending(timeout_s)
        self._observation.stop_watching(ending)
        for reader in self._gils.values():
            reader.close()
        self._observation.release(ending)
        ending.tell()

    @property
    def truncated(self) -> tuple[int, int]:
        """How many stacks were complete, and how many cut short."""
        return self._profile.complete, sum(self._profile.truncated.values())

    @property
    def dropped(self) -> int:
        """How many stacks were not taken because the buffer was full; their calls are in the totals all the same."""
        return self._profile.losses()[Loss.EVENTS_FULL] - self._dropped_before

    def losses(self) -> dict[Loss, int]:
        """Return how often each thing went wrong in the kernel."""
        of_counts = self._cuda.losses()
        return {loss: n + of_counts[loss] for loss, n in self._profile.losses().items()}

    @property
    def cut_for_tables(self) -> int:
        """How many stacks were cut short because tables of their files were still being read."""
        return self._profile.cut_for_tables

    def progress(self) -> Progress:
        """Say whether the first stacks can be taken, and what is still being read for others."""
        return self._profile.progress(self._pids)

    def prepare(
        self,
        told_to_stop: threading.Event | None = None,
        on_progress: Callable[[Progress], None] = lambda _: None,
        timeout_s: float = _READY_S,
    ) -> bool:
        """Wait until the first stacks can be taken; False when the time is up first, or it is told to stop."""
        told_to_stop = told_to_stop or threading.Event()
        deadline = time.monotonic() + timeout_s
        while not (now := self.progress()).is_ready:
            on_progress(now)
            if time.monotonic() > deadline or told_to_stop.wait(_READY_LOOK_S):
                return False
        return True

    def record(self, duration_s: float) -> list[Profile]:
        """Record for so long, or until the processes end, and return one profile for each process and type."""
        self.prepare()
        self.start()
        self.wait(duration_s, threading.Event())
        return self.finish()

    def settle(self, timeout_s: float = _TABLES_S) -> bool:
        """Wait for all unwinding tables of what the processes have mapped; False when the time is up first."""
        for pid in self._pids:
            self._profile.observe(pid)
        return self._profile.loader.settle(timeout_s)

    def start(self) -> None:
        """Begin a recording: what was sampled before is dropped."""
        self._cuda.collect(names_s=0.0)
        self._profile.start()
        self._dropped_before = self._profile.losses()[Loss.EVENTS_FULL]

    def wait(
        self,
        duration_s: float,
        told_to_stop: threading.Event,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Let the recording go on for so long, until no process is left, or until it is told to stop."""
        deadline = time.monotonic() + duration_s
        while (left := deadline - time.monotonic()) > 0 and self._goes_on():
            on_progress(self.progress())
            if told_to_stop.wait(min(left, _SLICE_S)):
                return

    def ask_threads(self, on_thread: Callable[[StackSample, Stack], None], names_s: float) -> None:
        """Say what the threads of the processes do now, of recordings that show it; for names so long is waited."""
        self._profile.on_thread = on_thread
        for pid in self._pids:
            self._profile.ask_threads(pid, names_s)

    def gil_holders(self) -> list[int]:
        """Return which threads of the processes hold a GIL now, as far as their interpreters say so."""
        found = []
        for pid in self._pids:
            python = self._profile.loader.python_of(pid)
            if python is not None:
                reader = self._gils.setdefault(pid, GilReader(self._observation.parsers, pid))
                found += reader.holders(python)
        return found

    def _goes_on(self) -> bool:
        if self._has_ended.is_set() and time.monotonic() - self._collected_at > _COLLECT_S:
            # The tables have room for those that are still to come.
            self._has_ended.clear()
            self._cuda.collect(names_s=0.0)
            self._collected_at = time.monotonic()
        return bool(self.awaited())

    def awaited(self) -> list[int]:
        """Return which processes the recording goes on for."""
        return self._awaited.find(self._observation.followed)

    @property
    def uses_gpu(self) -> bool:
        """Whether any of the processes has mapped a library of a GPU's driver."""
        return bool(self._gpu_users)

    def finish(self, names_s: float = _NAMES_S) -> list[Profile]:
        """Return what was recorded since the start, one profile for each process and type.

        No second look follows: names that are still being looked up are waited for, for so long.
        """
        self._profile.wait_for_names(names_s)
        self._cuda.settle(names_s)
        self._cuda.collect()
        return merge(self._profile.profiles(last=True, names_s=names_s))

    def _require_readable(self, pid: int) -> None:
        try:
            executable_mappings(self._observation.parsers, pid)
        except PermissionError as e:
            raise OtelGpuError(f"process {pid} may not be looked at; run as root or with CAP_SYS_PTRACE") from e
