"""How is one profile of live processes taken? The parts that a recording needs, wired, started and stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from .abi import Loss
from .config.settings import CudaSettings, ProfileSettings
from .discovery import drivers, procfs
from .discovery.libraries import Library
from .discovery.processes import Process, ProcessTable
from .discovery.watch import Watcher
from .ending import Ending
from .errors import OtelGpuError
from .memory_limit import table_share
from .probes.table import Counted
from .process.files import MappedFile
from .process.mappings import executable_mappings
from .process.parsers import Parsers
from .receivers.cuda.loading import CudaPrograms
from .shortage import require_descriptors
from .signals.profiles import Profile, ProfileType, merge, shows_gpu_time

if TYPE_CHECKING:
    from .receivers.cuda.receiver import CudaReceiver
    from .receivers.profiles.receiver import ProfileReceiver, Progress

_log = logging.getLogger(__name__)
_SLICE_S = 0.25
_TABLES_S = 60.0
"""How long all unwinding tables of a recording's processes are waited for; they are kept for the next time."""
_READY_S = 30.0
"""How long a recording waits for what most stacks need; it begins without that then."""
_READY_LOOK_S = 0.02
_NAMES_S = 10.0
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
    ) -> None:
        """Attach to the processes; OtelGpuError where that cannot be. `parsers` may have been started; they are closed here."""
        self._pids = (pids,) if isinstance(pids, int) else tuple(pids)
        settings = cuda or CudaSettings()
        require_descriptors(profiles=True)
        share = table_share(profiles=True)
        self._types = tuple(types)
        self._parsers = parsers or Parsers()
        self._processes = ProcessTable({}, self._parsers)
        for pid in self._pids:
            _require_alive(pid)
        # While programs are loaded a child gets ready.
        self._parsers.start()
        for pid in self._pids:
            self._processes.observe(pid, late=True)
        self._watcher: Watcher | None = None
        self._profile: ProfileReceiver | None = None
        self._dropped_before = 0
        single_step = settings.arm64_single_step or not drivers.is_arm64()
        with ThreadPoolExecutor(1, "loading") as beside:
            loading = beside.submit(
                CudaPrograms,
                map_entries=settings.map_entries,
                link=settings.link,
                only=self._pids,
                counted=Counted.ALL if shows_gpu_time(types) else Counted.LAUNCHES,
                table_share=share,
            )
            # What the programs are read with is imported while the kernel checks them.
            from .receivers.cuda.receiver import CudaReceiver
            from .receivers.profiles.receiver import ProfileReceiver
        self._cuda: CudaReceiver = CudaReceiver(
            self._processes,
            self._parsers,
            loading.result(),
            policy=settings.site,
            allow_single_step=single_step,
        )
        try:
            self._profile = ProfileReceiver(
                self._processes,
                self._parsers,
                types,
                tables=self._cuda.tables,
                kernel_name=self._cuda.kernel_name,
                take_busy=self._cuda.take_busy,
                only=self._pids,
                policy=settings.site,
                allow_single_step=single_step,
                link=settings.link,
                stacks_per_second=stacks_per_second,
                table_rows=table_rows,
                table_share=share,
            )
            self._cuda.before_forgetting(self._profile.finish)
            for pid in self._pids:
                self._require_readable(pid)
                self._profile.observe(pid)
            self._watcher = Watcher(
                self._processes,
                self._parsers,
                self._on_library,
                pids=self._pids,
                on_map=self._profile.observe,
                on_unused=self._on_unused,
                retry=self._retry,
            )
            self._watcher.scan()
            self._watcher.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Detach, within the time given whatever hangs; idempotent."""
        ending = Ending(timeout_s)
        if self._watcher is not None:
            watcher, self._watcher = self._watcher, None
            ending.attempt("discovery", watcher.stop)
        if self._profile is not None:
            profile, self._profile = self._profile, None
            ending.release("probes for stacks are", profile.close if ending.is_complete else profile.detach_all)
        ending.release("probes are", self._cuda.close if ending.is_complete else self._cuda.detach_all)
        ending.release("the children that parse are", self._end_children)
        ending.tell()

    def _end_children(self) -> None:
        self._parsers.close()
        self._processes.close()

    @property
    def truncated(self) -> tuple[int, int]:
        """How many stacks were complete, and how many cut short."""
        assert self._profile is not None
        return self._profile.complete, sum(self._profile.truncated.values())

    @property
    def dropped(self) -> int:
        """How many stacks were not taken because the buffer was full; their calls are in the totals all the same."""
        assert self._profile is not None
        return self._profile.losses()[Loss.EVENTS_FULL] - self._dropped_before

    def losses(self) -> dict[Loss, int]:
        """Return how often each thing went wrong in the kernel."""
        assert self._profile is not None
        of_counts = self._cuda.losses()
        return {loss: n + of_counts[loss] for loss, n in self._profile.losses().items()}

    @property
    def cut_for_tables(self) -> int:
        """How many stacks were cut short because tables of their files were still being read."""
        assert self._profile is not None
        return self._profile.cut_for_tables

    def progress(self) -> Progress:
        """Say whether the first stacks can be taken, and what is still being read for others."""
        assert self._profile is not None
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
        assert self._profile is not None
        for pid in self._pids:
            self._profile.observe(pid)
        return self._profile.loader.settle(timeout_s)

    def start(self) -> None:
        """Begin a recording: what was sampled before is dropped."""
        assert self._profile is not None
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
        while (left := deadline - time.monotonic()) > 0 and any(map(procfs.is_alive, self._pids)):
            on_progress(self.progress())
            if told_to_stop.wait(min(left, _SLICE_S)):
                return

    def finish(self, names_s: float = _NAMES_S) -> list[Profile]:
        """Return what was recorded since the start, one profile for each process and type.

        No second look follows: names that are still being looked up are waited for, for so long.
        """
        assert self._profile is not None
        self._cuda.before_forgetting(partial(self._profile.finish, names_s=names_s))
        self._cuda.settle(names_s)
        self._cuda.collect()
        return merge(self._profile.profiles(last=True, names_s=names_s))

    def _on_library(self, _process: Process, library: Library, file: MappedFile, _mapped_ns: int | None) -> None:
        # Side by side: both wait for a child that decodes, and for the kernel.
        with ThreadPoolExecutor(1, "attaching") as beside:
            counts = beside.submit(self._cuda.attach, library, file)
            if self._profile is not None:
                self._profile.attach(library, file)
            counts.result()

    def _on_unused(self, library: Library) -> None:
        self._cuda.detach(library)
        if self._profile is not None:
            self._profile.detach(library)

    def _retry(self) -> None:
        self._cuda.retry()
        if self._profile is not None:
            self._profile.retry()

    def _require_readable(self, pid: int) -> None:
        try:
            executable_mappings(self._parsers, pid)
        except PermissionError as e:
            raise OtelGpuError(f"process {pid} may not be looked at; run as root or with CAP_SYS_PTRACE") from e


def _require_alive(pid: int) -> None:
    if not procfs.is_alive(pid):
        raise OtelGpuError(f"process {pid} does not exist; look its number up with ps or nvidia-smi")
