"""How are the parts wired, started and stopped? No logic lives here."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from . import __version__, telemetry
from .config import Config, CudaSettings, KernelNamesSettings, NvmlSettings, ProfileSettings
from .discovery import drivers
from .discovery.host import host
from .discovery.libraries import Library
from .discovery.processes import Process, ProcessTable
from .discovery.watch import Watcher
from .errors import OtelGpuError, UnsupportedKernelError
from .exporters import ExporterStats
from .exporters.build import Exporters, build
from .exporters.settings import MAX_REQUEST_BYTES, OtlpSettings
from .model import Resource, attributes
from .pipeline import Pipeline, Point
from .process.files import MappedFile
from .process.parsers import Parsers
from .processors import Processor
from .processors.devices import DeviceNames
from .processors.hip_devices import HipDeviceNames
from .processors.kernel_names import KernelNames
from .processors.untracked_memory import UntrackedMemory
from .receivers import Receiver
from .receivers.agent_self import SelfReceiver
from .receivers.cuda import CudaReceiver
from .receivers.hip_devices import HipDeviceBook
from .receivers.nvml import NvmlReceiver
from .receivers.process_devices import DeviceBook

if TYPE_CHECKING:
    from .profiling import ProfilePipeline
    from .receivers.profile import ProfileReceiver

_log = logging.getLogger(__name__)
_FLUSH_S = 10.0
_LOOK_S = 1.0
"""How often chosen processes are looked for."""
_EXIT_COLLECT_S = 0.25
"""How soon after a process has ended its last counts are read, at the most often."""


class Agent:
    """Observes GPU programs until it is stopped. A context manager; also for use inside other programs."""

    def __init__(self, config: Config | None = None) -> None:
        """Take the configuration; nothing is touched before `start`."""
        self._config = config or Config()
        self._processes = ProcessTable(self._config.shared_attributes)
        self._parsers = Parsers()
        self._cuda: CudaReceiver | None = None
        self._nvml: NvmlReceiver | None = None
        self._devices: DeviceBook | None = None
        self._self: SelfReceiver | None = None
        self._watcher: Watcher | None = None
        self._exporters: Exporters | None = None
        self._pipeline: Pipeline | None = None
        self._counts = False
        """Whether what the CUDA receiver counts is exported."""
        self._profile: ProfileReceiver | None = None
        self._profiling: ProfilePipeline | None = None
        self._stop = threading.Event()
        self._exited = threading.Event()
        self._wake = threading.Event()
        self._finished = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="otel-gpu-collect", daemon=True)

    def __enter__(self) -> Agent:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Attach to what runs and begin to follow the rest; OtelGpuError where that cannot be."""
        if self._config.disabled:
            _log.info("OTEL_SDK_DISABLED is set: nothing is observed")
            self._finished.set()
            return
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        config = self._config
        pids = () if config.discovery.everything else config.discovery.pids
        settings = [s for s in config.used_receivers if isinstance(s, CudaSettings)]
        profile = next((s for s in config.used_receivers if isinstance(s, ProfileSettings)), None)
        self._counts = bool(settings)
        if settings or profile is not None:
            # Profiles need the counts' knowledge of kernels and captures, whether or not the counts are exported.
            cuda = settings[0] if settings else CudaSettings()
            self._parsers.start()
            self._cuda = CudaReceiver(
                self._processes,
                self._parsers,
                map_entries=cuda.map_entries,
                policy=cuda.site,
                allow_single_step=cuda.arm64_single_step or not drivers.is_arm64(),
                link=cuda.link,
                only=pids,
                busy_time=cuda.busy_time,
            )
            if profile is not None:
                self._start_profiles(profile, cuda, pids)
            self._devices = DeviceBook(self._processes, self._cuda.device_uuids)
            self._watcher = Watcher(
                self._processes,
                self._parsers,
                self._on_library,
                pids=pids,
                on_exit=self._on_exit,
                on_map=self._on_map,
                on_unused=self._on_unused,
            )
            for library, file in drivers.installed(self._parsers, cuda.libraries):
                self._cuda.attach(library, file)
                self._watcher.keep(library, os.fsdecode(file.path))
            self._watcher.scan()
            self._watcher.start()
        # The exporters come last: their libraries take longer to load than everything above.
        exporters = self._exporters = build(config)
        receivers: list[Receiver] = [self._cuda] if self._cuda is not None and self._counts else []
        # Whatever the file asks for: what was lost must not go unsaid.
        self._self = SelfReceiver(
            self._cuda,
            self._exporter_stats,
            __version__,
            self._profile,
            self._processes.identities,
            dict(self._config.resource_attributes),
        )
        receivers.append(self._self)
        processors: list[Processor] = [] if self._devices is None else [DeviceNames(self._devices), UntrackedMemory()]
        if self._cuda is not None and not (amd := HipDeviceBook(self._processes)).is_empty:
            processors.append(HipDeviceNames(amd))
        processors += [
            KernelNames(s.top, s.demangle) for s in config.processors.values() if isinstance(s, KernelNamesSettings)
        ]
        self._pipeline = Pipeline(receivers, processors, exporters.metrics)
        if self._profile is not None:
            from .profiling import ProfilePipeline

            self._profiling = ProfilePipeline(self._profile, exporters.profiles, self._max_request_bytes())
        self._thread.start()
        chosen = "1 process" if len(pids) == 1 else f"{len(pids)} processes"
        _log.info("observing %s", chosen if pids else "every GPU process of this host")

    def _start_profiles(self, settings: ProfileSettings, cuda: CudaSettings, pids: tuple[int, ...]) -> None:
        """Load what walks stacks, which metrics do without."""
        from .profiling import types_of
        from .receivers.profile import ProfileReceiver

        assert self._cuda is not None
        try:
            self._profile = ProfileReceiver(
                self._processes,
                self._parsers,
                types_of(settings),
                tables=self._cuda.tables,
                kernel_name=self._cuda.kernel_name,
                take_busy=self._cuda.take_busy,
                only=pids,
                policy=cuda.site,
                allow_single_step=cuda.arm64_single_step or not drivers.is_arm64(),
                link=cuda.link,
                cpu_hz=settings.cpu_hz,
                stacks_per_second=settings.stacks_per_second,
                table_rows=settings.table_rows,
            )
            self._cuda.before_forgetting(self._profile.finish)
        except UnsupportedKernelError as e:
            if "metrics" not in self._config.signals:
                raise
            _log.warning("no profiles: %s", e)

    def _max_request_bytes(self) -> int:
        wanted = [self._config.exporter(e, "profiles") for e in self._config.exporters]
        return min([s.max_request_bytes for s in wanted if isinstance(s, OtlpSettings)], default=MAX_REQUEST_BYTES)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to observe, or `stop`; False when the time (in seconds) is up first.

        Raises OtelGpuError when the agent can measure no more.
        """
        finished = self._finished.wait(timeout)
        if self._failure is not None:
            raise OtelGpuError(
                f"the agent stopped measuring: {type(self._failure).__name__}: {self._failure}; "
                "run again with --debug and report it"
            ) from self._failure
        return finished

    def stop(self) -> None:
        """Export the last interval and release everything; idempotent."""
        self._stop.set()
        self._wake.set()
        self._finished.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        if self._cuda is not None and self._pipeline is not None:
            self._cuda.settle()
        if self._pipeline is not None:
            self._collect()
            self._pipeline.export()
            if self._profiling is not None:
                self._profiling.export(last=True)
            self._pipeline = None
        if self._exporters is not None:
            self._exporters.shutdown(_FLUSH_S)
            self._exporters = None
        if self._profile is not None:
            self._profile.close()
            self._profile = self._profiling = None
        if self._cuda is not None:
            self._cuda.close()
            self._cuda = None
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None
        self._parsers.close()

    def snapshot(self) -> list[Point]:
        """Return every series as it stands now, without any exporter."""
        if self._pipeline is None:
            return []
        self._collect()
        return self._pipeline.snapshot()

    def _on_library(self, process: Process, library: Library, file: MappedFile) -> None:
        # Its unwinding tables are read meanwhile.
        if self._profile is not None:
            self._profile.observe(process.pid)
        # What the process does before the probes are there is not seen.
        if self._cuda is not None:
            self._cuda.attach(library, file)
        if self._profile is not None:
            self._profile.attach(library, file)
        if self._devices is not None:
            self._devices.observe(process)

    def _on_unused(self, library: Library) -> None:
        if self._cuda is not None:
            self._cuda.detach(library)
        if self._profile is not None:
            self._profile.detach(library)

    def _on_map(self, pid: int) -> None:
        if self._profile is not None:
            self._profile.observe(pid)

    def _on_exit(self, _process: Process) -> None:
        self._exited.set()
        self._wake.set()

    def _open_nvml(self) -> None:
        """Load NVIDIA's library, where it is: it can take seconds to wake a GPU, which nobody shall wait for."""
        if self._pipeline is None or not any(isinstance(s, NvmlSettings) for s in self._config.used_receivers):
            return
        shared = Resource(attributes({**host(), **self._config.shared_attributes}))
        tell = self._devices.resource if self._devices is not None else lambda _: None
        nvml = NvmlReceiver(shared, process_resource=tell)
        if not nvml.available:
            _log.info("no hardware metrics: %s", nvml.reason)
            return
        self._nvml = nvml
        self._pipeline.add(nvml)

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as e:  # noqa: BLE001 - without this thread nothing is measured: whoever waits must learn
            _log.debug("collecting failed", exc_info=True)
            self._failure = e
            self._finished.set()

    def _follow(self) -> None:
        self._open_nvml()
        next_export = time.monotonic() + self._config.interval_s
        # Of a process that has yet to become a GPU process nobody tells that it has ended.
        look_s = math.inf if self._config.discovery.everything else _LOOK_S
        while not self._stop.is_set():
            self._wake.wait(min(max(next_export - time.monotonic(), 0), look_s))
            if self._stop.is_set():
                break
            if self._exited.is_set():
                self._exited.clear()
                self._wake.clear()
                self._collect()
                self._check_finished()
                self._stop.wait(_EXIT_COLLECT_S)
            elif not self._config.discovery.everything:
                self._check_finished()
            if time.monotonic() >= next_export:
                next_export = max(next_export + self._config.interval_s, time.monotonic())
                self._processes.check_alive()
                self._collect()
                if self._pipeline is not None:
                    self._pipeline.export()
                if self._profiling is not None:
                    self._profiling.export()
                self._check_finished()

    def _collect(self) -> None:
        """Read everything; processes that had ended before are then done with."""
        assert self._pipeline is not None
        ended = self._processes.ended()
        began = time.perf_counter()
        if self._nvml is not None and self._devices is not None:
            self._devices.learn(self._nvml.gpus(), self._nvml.process_memory())
        self._pipeline.collect([p.resource for p in ended])
        if self._cuda is not None and not self._counts:
            self._cuda.collect()
        if self._self is not None:
            self._self.duration(telemetry.COLLECT_DURATION, time.perf_counter() - began)
            for name, seconds in self._pipeline.take_durations():
                self._self.duration(telemetry.EXPORT_DURATION, seconds, **{"otel.component.name": name})
        for process in ended:
            self._processes.forget(process)

    def _check_finished(self) -> None:
        config = self._config.discovery
        if not config.everything and not any(self._watched_alive()):
            self._finished.set()

    def _watched_alive(self) -> list[int]:
        from .discovery.procfs import is_alive

        return [pid for pid in self._config.discovery.pids if is_alive(pid)]

    def _exporter_stats(self) -> Sequence[tuple[str, ExporterStats]]:
        return [] if self._exporters is None else list(self._exporters.stats().items())
