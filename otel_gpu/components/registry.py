"""Which components are there? This package's own, and those that other packages have installed.

Others are found by entry points, and imported only when a configuration names them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal, overload

from ..errors import ConfigError
from ..signals import Signal
from ..text import one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from . import ExporterFactory, ProcessorFactory, ReceiverFactory

Kind = Literal["receivers", "processors", "exporters"]

_OWN: dict[Kind, dict[str, str]] = {
    "receivers": {
        "cuda": "cuda",
        "nvml": "nvml",
        "self": "self",
        "profile": "profiles",
        "inference": "inference",
        "rdma": "rdma",
        "nccl": "nccl",
        "kubernetes": "kubernetes",
    },
    "processors": {"kernel_names": "kernel_names", "kubernetes": "kubernetes", "resource": "resource"},
    "exporters": {
        "otlp": "otlp",
        "otlp_grpc": "otlp:GRPC",
        "otlphttp": "otlp:HTTP",
        "otlp_http": "otlp:HTTP",
        "file": "file",
        "console": "console",
        "sdk": "sdk",
        "prometheus": "prometheus",
    },
}
"""By type: the folder whose module `factory` has the factory, `FACTORY` where no other name is said."""
DEFAULTS: dict[Kind, tuple[str, ...]] = {
    "receivers": ("cuda", "nvml", "self"),
    "processors": ("kernel_names",),
    "exporters": ("otlp",),
}
"""What there is where a configuration leaves a section out."""
COUNTING = "cuda"
"""Which receiver counts in the kernel what others need as well."""
GIVING: dict[Signal, str] = {"profiles": "profile", "traces": "inference"}
"""Which receiver gives a signal that is asked for by a word alone, `--profiles` or `--traces`."""


def own(kind: Kind) -> list[str]:
    """Return the types that this package has."""
    return list(_OWN[kind])


def installed(kind: Kind) -> list[str]:
    """Return the types that other packages have installed."""
    return sorted(_installed(kind).keys() - _OWN[kind].keys())


def names(kind: Kind) -> list[str]:
    """Return all types."""
    return [*own(kind), *installed(kind)]


@overload
def find(kind: Literal["receivers"], type_: str) -> ReceiverFactory | None: ...
@overload
def find(kind: Literal["processors"], type_: str) -> ProcessorFactory | None: ...
@overload
def find(kind: Literal["exporters"], type_: str) -> ExporterFactory | None: ...


def find(kind: Kind, type_: str) -> ReceiverFactory | ProcessorFactory | ExporterFactory | None:
    """Return a factory; None where there is none, ConfigError where it cannot be imported, or is none."""
    if (place := _OWN[kind].get(type_)) is not None:
        folder, _, name = place.partition(":")
        factory: ReceiverFactory | ProcessorFactory | ExporterFactory
        factory = getattr(import_module(f"..{kind}.{folder}.factory", __package__), name or "FACTORY")
        return factory
    entry = _installed(kind).get(type_)
    return None if entry is None else _loaded(kind, entry)


@cache
def _installed(kind: Kind) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # here, because few configurations name another package's component

    return {entry.name: entry for entry in entry_points(group=f"otel_gpu.{kind}")}


@cache
def _loaded(kind: Kind, entry: EntryPoint) -> ReceiverFactory | ProcessorFactory | ExporterFactory:
    from . import ExporterFactory, ProcessorFactory, ReceiverFactory

    wanted = {"receivers": ReceiverFactory, "processors": ProcessorFactory, "exporters": ExporterFactory}[kind]
    package = entry.dist.name if entry.dist is not None else entry.value
    try:
        found: object = entry.load()
    except Exception as e:
        raise ConfigError(
            f"{kind}: {entry.name} of the package {package} cannot be imported: {one_line(f'{type(e).__name__}: {e}')}; mend "
            "or remove the package"
        ) from e
    if not isinstance(found, ReceiverFactory | ProcessorFactory | ExporterFactory) or not isinstance(found, wanted):
        raise ConfigError(
            f"{kind}: {entry.name} of the package {package} is a {type(found).__name__}, and no {wanted.__name__}; mend the "
            "package"
        )
    return found
