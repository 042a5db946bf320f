"""What can be set, part by part? Frozen values with the defaults of what a file leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from ..errors import ConfigError
from ..exporters.settings import ConsoleSettings, FileSettings, OtlpSettings, SdkSettings, Signal

DEFAULT_INTERVAL_S = 10.0

LogLevel = Literal["debug", "info", "warn", "error"]


@dataclass(frozen=True, slots=True)
class CudaSettings:
    """`receivers.cuda`."""

    map_entries: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] = 65_536
    """Rows of the aggregation table; what does not fit is counted in overflow rows."""
    site: Literal["fast", "entry"] = "fast"
    """Where probes go: the cheapest safe instruction, or always the function's first."""
    libraries: tuple[str, ...] = ()
    """Driver libraries to attach to before any process maps them."""
    arm64_single_step: bool = False
    """Allow probes on single-stepped instructions on arm64, where they have crashed GPU processes."""
    link: Literal["auto", "multi", "perf", "copies"] = "auto"
    """How probes are placed (`otel_gpu.bpf.linker`); `auto` takes the best that the kernel offers."""
    busy_time: bool = True
    """Bound the time for which devices work; without, a launch costs a little less."""


@dataclass(frozen=True, slots=True)
class NvmlSettings:
    """`receivers.nvml`."""


@dataclass(frozen=True, slots=True)
class SelfSettings:
    """`receivers.self`."""


ProfileName = Literal["launch", "wait", "alloc", "inuse", "copy", "gputime", "tensor", "cpu", "offcpu"]


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """`receivers.profile`."""

    types: tuple[ProfileName, ...] = ("launch", "wait", "copy", "alloc", "inuse", "cpu")
    """What is profiled; as `otel-gpu record --type` calls it."""
    cpu_hz: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 49
    """How often each CPU is looked at."""
    stacks_per_second: Annotated[int, msgspec.Meta(ge=4, le=100_000)] = 400
    """Stacks taken of one thread and type; what other calls do is added to them."""
    table_rows: Annotated[int, msgspec.Meta(ge=1 << 16, le=1 << 27)] = 1 << 23
    """Rows of unwinding tables that the kernel holds, each 8 bytes; a PyTorch process has 4 to 9 million, and the files
    that stand on its stacks go first."""


@dataclass(frozen=True, slots=True)
class KernelNamesSettings:
    """`processors.kernel_names`."""

    top: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 50
    """Kernels of a process that keep their name, the rest being `other`; 0 turns names off."""
    demangle: Literal["full", "short", "off"] = "full"
    """As in the source code, without template arguments and parameters, or as the driver knows them."""


@dataclass(frozen=True, slots=True)
class HealthCheckSettings:
    """`extensions.health_check`."""

    endpoint: str = "localhost:13133"
    """Where it listens: `HOST:PORT`; without a host, on every address of this machine."""
    path: str = "/"
    """What is asked for; liveness and readiness are `live` and `ready` below it."""

    def __post_init__(self) -> None:
        host, colon, port = self.endpoint.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port[:6]) > 65535 or "/" in host:
            raise ConfigError(
                f"endpoint: {self.endpoint!r} is no HOST:PORT; write one such as localhost:13133 or [::1]:13133"
            )
        if not self.path.startswith("/") or not self.path.isprintable() or not self.path.isascii() or " " in self.path:
            raise ConfigError(f"path: {self.path!r} is no path; write one such as /health")

    @property
    def address(self) -> tuple[str, int]:
        """The host, empty for every address, and the port."""
        host, _, port = self.endpoint.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


@dataclass(frozen=True, slots=True)
class Discovery:
    """Which processes are observed."""

    pids: tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 22)], ...] = ()
    """These; none means all."""
    all: bool = False
    """Every GPU process, whatever `pids` says."""

    @property
    def everything(self) -> bool:
        """True when no process is left out."""
        return self.all or not self.pids


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One signal's way through the parts, by their ids."""

    receivers: tuple[str, ...]
    processors: tuple[str, ...]
    exporters: tuple[str, ...]


ReceiverSettings = CudaSettings | NvmlSettings | SelfSettings | ProfileSettings | object
ProcessorSettings = KernelNamesSettings | object
ExporterSettings = OtlpSettings | FileSettings | ConsoleSettings | SdkSettings | object
"""Ours, or those of other packages' components."""

SIGNALS: tuple[Signal, ...] = ("metrics", "traces", "profiles")
RECEIVERS: dict[str, type] = {
    "cuda": CudaSettings,
    "nvml": NvmlSettings,
    "self": SelfSettings,
    "profile": ProfileSettings,
}
PROCESSORS: dict[str, type] = {"kernel_names": KernelNamesSettings}
GIVES: dict[type, Signal] = {
    CudaSettings: "metrics",
    NvmlSettings: "metrics",
    SelfSettings: "metrics",
    ProfileSettings: "profiles",
}
"""Which signal a receiver gives; those of other packages give metrics."""
EXTENSIONS: dict[str, type[HealthCheckSettings]] = {"health_check": HealthCheckSettings}
"""Settings by component type; those of exporters are in `config_load`."""


def component_type(component: str) -> str:
    """Return the type of an id, `type` or `type/name`."""
    return component.partition("/")[0]
