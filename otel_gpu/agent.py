"""How are the parts wired, started and stopped? No logic lives here."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from . import __version__, heap, registry, telemetry
from .components import Context
from .config.model import Config
from .config.settings import (
    CudaSettings,
    KernelNamesSettings,
    NvmlSettings,
    ProfileSettings,
    SelfSettings,
    component_type,
)
from .config.settings import Pipeline as PipelineSettings
from .discovery import drivers
from .discovery.host import host
from .discovery.libraries import Library
from .discovery.processes import Process, ProcessTable
from .discovery.watch import Watcher
from .ending import Ending
from .errors import ConfigError, OtelGpuError, UnsupportedKernelError
from .exporters import ExporterStats
from .exporters.build import Exporters, build
from .exporters.objects import ObjectExporter, check
from .exporters.settings import MAX_REQUEST_BYTES, OtlpSettings
from .lateness import Lateness
from .memory_limit import table_share
from .pipeline import Graph, Pipeline
from .probes.table import Counted
from .process.files import MappedFile
from .process.parsers import Parsers
from .processors import Processor
from .processors.devices import DeviceNames
from .processors.hip_devices import HipDeviceNames
from .processors.kernel_names import KernelNames
from .processors.untracked_memory import UntrackedMemory
from .receivers import Receiver
from .receivers.cuda.devices import DeviceBook
from .receivers.cuda.loading import CudaPrograms
from .receivers.hip.devices import HipDeviceBook
from .receivers.nvml.apart import NvmlApart
from .receivers.nvml.receiver import NvmlReceiver
from .receivers.self.receiver import SelfReceiver
from .series_limits import SeriesLimits
from .shortage import require_descriptors
from .signals.metrics import Point, Resource, attributes
from .supervision import Health, Worker

if TYPE_CHECKING:
    from .health_check import HealthCheck
    from .profiling import ProfilePipeline
    from .receivers.cuda.receiver import CudaReceiver
    from .receivers.profiles.receiver import ProfileReceiver

_log = logging.getLogger(__name__)
STOP_S = 8.0
"""How long a stop takes at the most, unless it is said otherwise: a service has ten seconds, and may be on a busy host."""
_RELEASE_S = 1.5
"""What is kept of it for letting go of everything."""
_WRITE_S = 1.0
"""What is kept of it for writing and sending."""
_HURRIED_S = 1.0
"""How long an interval that is being read when the agent is told to stop still waits for names."""
_TRIM_S = 10.0
"""How often memory is given back at the most: it takes a few milliseconds."""
_LOOK_S = 1.0
"""How often chosen processes are looked for."""
_EXIT_COLLECT_S = 0.25
"""How soon after a process has ended its last counts are read, at the most often."""


class Agent:
    """Observes GPU programs until it is stopped. A context manager; also for use inside other programs."""

    def __init__(self, config: Config | None = None, exporters: Sequence[object] = ()) -> None:
        """Take the configuration; nothing is touched before `start`.

        `exporters` are objects that get what is observed beside the configured ones: OpenTelemetry SDK exporters of
        metrics, or anything with a method of `otel_gpu.exporters.Exporter`. Whoever made them ends them.
        """
        self._config = config or Config()
        self._objects = tuple(exporters)
        check(self._objects)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget all of a run before: an agent may be started again."""
        self._parsers = Parsers()
        self._processes = ProcessTable(self._config.shared_attributes, self._parsers)
        self._cuda: CudaReceiver | None = None
        self._nvml: NvmlApart | None = None
        self._devices: DeviceBook | None = None
        self._amd: HipDeviceBook | None = None
        self._self: SelfReceiver | None = None
        self._of_others: list[Receiver] = []
        """Receivers of other packages."""
        self._watcher: Watcher | None = None
        self._exporters: Exporters | None = None
        self._pipeline: Graph | None = None
        self._counts = False
        """Whether what the CUDA receiver counts is exported."""
        self._profile: ProfileReceiver | None = None
        self._profiling: ProfilePipeline | None = None
        self._lateness = Lateness(self._note_delay)
        self._health_checks: list[HealthCheck] = []
        self._is_observing = False
        self._exited = threading.Event()
        self._finished = threading.Event()
        self._next_export = math.inf
        self._trim_at = 0.0
        self._collector = Worker("collect", self._follow)

    def __enter__(self) -> Agent:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Attach to what runs and begin to follow the rest; OtelGpuError where that cannot be, or where it runs already."""
        if self._is_observing:
            raise OtelGpuError("this agent is started already; stop it first, or make another one")
        if self._finished.is_set():
            self._begin_anew()
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
        self._start_health_checks()
        pids = () if config.discovery.everything else config.discovery.pids
        used = config.used_receivers.values()
        settings = [s for s in used if isinstance(s, CudaSettings)]
        profile = next((s for s in used if isinstance(s, ProfileSettings)), None)
        self._counts = bool(settings)
        if settings or profile is not None:
            require_descriptors(profiles=profile is not None)
            share = table_share(profiles=profile is not None)
            # Profiles need the counts' knowledge of kernels and captures, whether or not the counts are exported.
            cuda = settings[0] if settings else CudaSettings()
            self._parsers.start()
            with ThreadPoolExecutor(1, "loading") as beside:
                loading = beside.submit(
                    CudaPrograms,
                    map_entries=cuda.map_entries,
                    link=cuda.link,
                    only=pids,
                    counted=Counted.ALL if cuda.busy_time else Counted.NO_TIME,
                    table_share=share,
                )
                # What the programs are read with is imported while the kernel checks them.
                from .receivers.cuda.receiver import CudaReceiver
            self._cuda = CudaReceiver(
                self._processes,
                self._parsers,
                loading.result(),
                policy=cuda.site,
                allow_single_step=cuda.arm64_single_step or not drivers.is_arm64(),
            )
            if profile is not None:
                self._start_profiles(profile, cuda, pids, share)
            self._devices = DeviceBook(self._processes, self._cuda.device_uuids)
            self._amd = HipDeviceBook(self._processes, self._parsers)
            if any(isinstance(s, SelfSettings) for s in used):
                self._open_self()
            self._watcher = Watcher(
                self._processes,
                self._parsers,
                self._on_library,
                pids=pids,
                on_exit=self._on_exit,
                on_map=self._on_map,
                on_unused=self._on_unused,
                retry=self._retry,
            )
            for library, file in drivers.installed(self._parsers, cuda.libraries):
                self._cuda.attach(library, file)
                self._watcher.keep(library, os.fsdecode(file.path))
            self._watcher.scan()
            self._watcher.start()
        # The exporters come last: their libraries take longer to load than everything above.
        exporters = self._exporters = build(config, self._objects)
        self._pipeline = Graph(
            self._receivers(),
            [self._metrics_pipeline(p, exporters) for p in config.pipelines_of("metrics")],
            completed_by=self._completing(),
        )
        if self._profile is not None:
            from .profiling import ProfilePipeline

            wanted = [exporters.profiles[e] for p in config.pipelines_of("profiles") for e in p.exporters]
            wanted += [e for e in exporters.objects if isinstance(e, ObjectExporter)]
            self._profiling = ProfilePipeline(self._profile, wanted, self._max_request_bytes())
        self._next_export = time.monotonic() + config.interval_s
        self._collector.start()
        self._is_observing = True
        chosen = "1 process" if len(pids) == 1 else f"{len(pids)} processes"
        _log.info("observing %s", chosen if pids else "every GPU process of this host")

    def _receivers(self) -> dict[str, Receiver]:
        """Return the receivers of metrics, by id, those first of which others want to know what they measured."""
        found: dict[str, Receiver] = {}
        for component, settings in self._config.used_receivers.items():
            if isinstance(settings, CudaSettings) and self._cuda is not None:
                found[component] = self._cuda
            elif isinstance(settings, SelfSettings):
                found[component] = self._self or self._open_self()
            elif isinstance(settings, NvmlSettings):
                found[component] = self._open_nvml()
            elif (factory := registry.find("receivers", component_type(component))) is not None:
                found[component] = factory.create(Context(self._host_resource(), self._observed), settings)
                self._of_others.append(found[component])
        return {c: found[c] for c in sorted(found, key=lambda c: found[c] is not self._cuda)}

    def _metrics_pipeline(self, asked: PipelineSettings, exporters: Exporters) -> Pipeline:
        settings = [self._config.processors[p] for p in asked.processors]
        return Pipeline(
            asked.receivers,
            [_processor(p, s) for p, s in zip(asked.processors, settings, strict=True)],
            [*(exporters.metrics[e] for e in asked.exporters), *exporters.objects],
            SeriesLimits.for_kernels(max((s.top for s in settings if isinstance(s, KernelNamesSettings)), default=0)),
        )

    def _host_resource(self) -> Resource:
        return Resource(attributes({**host(), **self._config.shared_attributes}))

    def _observed(self) -> list[Resource]:
        return [process.resource for process in self._processes if not process.ended]

    def _completing(self) -> list[Processor]:
        """Return what adds what several receivers know together: which GPU it was, and what of its memory nobody saw."""
        found: list[Processor] = [] if self._devices is None else [DeviceNames(self._devices), UntrackedMemory()]
        if self._amd is not None and not self._amd.is_empty:
            found.append(HipDeviceNames(self._amd))
        return found

    def _open_self(self) -> SelfReceiver:
        self._self = SelfReceiver(
            self._cuda,
            self._exporter_stats,
            __version__,
            self._profile,
            self._processes.identities,
            dict(self._config.resource_attributes),
            self.health,
        )
        return self._self

    def _start_health_checks(self) -> None:
        if not self._config.extensions:
            return
        from .health_check import HealthCheck, Report

        def report() -> Report:
            return Report(not self._collector.is_stuck, self._is_observing, self.health())

        for settings in self._config.extensions.values():
            self._health_checks.append(HealthCheck(settings, report))

    def _start_profiles(
        self, settings: ProfileSettings, cuda: CudaSettings, pids: tuple[int, ...], share: float
    ) -> None:
        """Load what walks stacks, which metrics do without."""
        from .profiling import types_of
        from .receivers.profiles.receiver import ProfileReceiver

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
                table_share=share,
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
        """Wait until nothing is left to observe, or `stop`; False when the time (in seconds) is up first."""
        return self._finished.wait(timeout)

    def is_ready(self) -> bool:
        """Say whether the first stacks of chosen processes can be taken; True where none are to be taken."""
        pids = () if self._config.discovery.everything else self._config.discovery.pids
        return self._profile is None or self._profile.progress(pids).is_ready

    def health(self) -> list[Health]:
        """Say of every part how it is."""
        parts = (
            *(self._processes, self._cuda, self._profile, self._nvml),
            *(self._pipeline, self._profiling, self._exporters),
        )
        workers = self._collector, *(check.worker for check in self._health_checks)
        return [w.health() for w in workers] + [h for part in parts if part is not None for h in part.health()]

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """Export the last interval and release everything, within the time given whatever hangs; idempotent.

        False when something of the last interval may be missing; the log says what hung.
        """
        self._finished.set()
        self._is_observing = False
        ending = Ending(timeout_s)
        # On a busy host what comes next needs the time that new programs would take.
        if self._watcher is not None:
            self._watcher.look_no_more()
        if self._profile is not None:
            self._profile.place_no_more()
        if self._cuda is not None:
            self._cuda.place_no_more()
            self._cuda.hurry(_HURRIED_S)
        ending.attempt_within("the reading of an interval", self._collector.stop)
        if self._watcher is not None:
            watcher, self._watcher = self._watcher, None
            ending.attempt("discovery", watcher.stop)
        if (pipeline := self._pipeline) is not None:
            if self._cuda is not None:
                ending.attempt_within("names of kernels", self._settle_names)
            # It takes long where many programs have just ended, and nothing else matters as much.
            ending.attempt_within(
                "the reading of the last interval", lambda _: self._collect(pipeline), keep_s=_WRITE_S + _RELEASE_S
            )
            ending.attempt("the writing of the last interval", pipeline.export)
            if self._profiling is not None:
                ending.attempt("the last profiles", partial(self._profiling.export, last=True))
        # What hangs may go on one day, and must find what it works on.
        is_in_use = not ending.is_complete
        if self._exporters is not None:
            ending.attempt_within("export", self._exporters.shutdown, keep_s=_RELEASE_S)
        for what, part in (("probes for stacks are", self._profile), ("probes are", self._cuda)):
            if part is not None:
                ending.release(what, part.detach_all if is_in_use else part.close)
        if self._nvml is not None:
            ending.release("NVML is", self._nvml.close)
        while self._of_others:
            ending.release("receivers of other packages are", self._of_others.pop().close)
        while self._health_checks:
            ending.release("the health check is", self._health_checks.pop().close)
        ending.release("the children that parse are", self._end_children)
        self._pipeline = self._profiling = self._exporters = self._profile = self._cuda = self._nvml = None
        ending.tell()
        return ending.is_complete

    def _settle_names(self, limit_s: float) -> None:
        assert self._cuda is not None
        self._cuda.settle(limit_s / 2)

    def snapshot(self) -> list[Point]:
        """Return every series as it stands now, without any exporter."""
        if (pipeline := self._pipeline) is None:
            return []
        self._collect(pipeline)
        return pipeline.snapshot()

    def _on_library(self, process: Process, library: Library, file: MappedFile, mapped_ns: int | None) -> None:
        # Its unwinding tables are read meanwhile.
        if self._profile is not None:
            self._profile.observe(process.pid)
        # What the process does before the probes are there is not seen.
        attached = None if self._cuda is None else self._cuda.attach(library, file)
        if attached is not None:
            self._lateness.attached(process, library, mapped_ns, attached.placed_ns)
        if self._profile is not None:
            self._profile.attach(library, file)
        if self._amd is not None:
            self._amd.observe(process)

    def _note_delay(self, seconds: float) -> None:
        if self._self is not None:
            self._self.duration(telemetry.ATTACH_DELAY, seconds)

    def _on_unused(self, library: Library) -> None:
        if self._cuda is not None:
            self._cuda.detach(library)
        if self._profile is not None:
            self._profile.detach(library)

    def _retry(self) -> None:
        if self._cuda is not None:
            self._cuda.retry()
        if self._profile is not None:
            self._profile.retry()

    def _on_map(self, pid: int) -> None:
        if self._profile is not None:
            self._profile.observe(pid)

    def _on_exit(self, _process: Process) -> None:
        self._exited.set()
        self._collector.wake()

    def _end_children(self) -> None:
        self._parsers.close()
        self._processes.close()

    def _open_nvml(self) -> NvmlApart:
        """Have NVIDIA's library loaded."""
        shared = self._host_resource()
        devices = self._devices
        self._nvml = NvmlApart(
            lambda: NvmlReceiver(shared, process_resource=devices.resource if devices else lambda _: None),
            devices.learn if devices else lambda *_: None,
        )
        return self._nvml

    def _follow(self) -> float:
        """Read and export what is due, and return when to look again."""
        pipeline = self._pipeline
        assert pipeline is not None
        if self._exited.is_set():
            self._exited.clear()
            self._collect(pipeline)
            self._check_finished()
            self._collector.pause(_EXIT_COLLECT_S)
        elif not self._config.discovery.everything:
            self._check_finished()
        if time.monotonic() >= self._next_export:
            self._next_export = max(self._next_export + self._config.interval_s, time.monotonic())
            self._processes.check_alive()
            self._collect(pipeline)
            # Else what follows the last interval is soon written with it.
            if not self._finished.is_set():
                pipeline.export()
                if self._profiling is not None:
                    self._profiling.export()
            self._check_finished()
        # Of a process that has yet to become a GPU process nobody tells that it has ended.
        look_s = math.inf if self._config.discovery.everything else _LOOK_S
        return min(max(self._next_export - time.monotonic(), 0), look_s)

    def _collect(self, pipeline: Graph) -> None:
        """Read everything; processes that had ended before are then done with."""
        ended = self._processes.ended()
        began = time.perf_counter()
        if self._nvml is not None:
            self._nvml.ask()
        if not pipeline.collect([p.resource for p in ended]):
            # What could not be read may be theirs: they are done with when it was.
            ended = []
        if self._cuda is not None and not self._counts:
            self._cuda.collect()
        if self._self is not None:
            self._self.duration(telemetry.COLLECT_DURATION, time.perf_counter() - began)
            for name, seconds in pipeline.take_durations():
                self._self.duration(telemetry.EXPORT_DURATION, seconds, **{"otel.component.name": name})
        for process in ended:
            self._processes.forget(process)
        # Much of what was there at the start, or of those who have ended, is freed by now.
        if (ended or not self._trim_at) and time.monotonic() >= self._trim_at:
            self._trim_at = time.monotonic() + _TRIM_S
            heap.trim()

    def _check_finished(self) -> None:
        config = self._config.discovery
        if not config.everything and not any(self._watched_alive()):
            self._finished.set()

    def _watched_alive(self) -> list[int]:
        from .discovery.procfs import is_alive

        return [pid for pid in self._config.discovery.pids if is_alive(pid)]

    def _exporter_stats(self) -> Sequence[tuple[str, ExporterStats]]:
        return [] if self._exporters is None else list(self._exporters.stats().items())


def _processor(component: str, settings: object) -> Processor:
    if isinstance(settings, KernelNamesSettings):
        return KernelNames(settings.top, settings.demangle)
    if (factory := registry.find("processors", component_type(component))) is not None:
        return factory.create(settings)
    raise ConfigError(f"processors.{component}: nothing is known about processors of this type")
