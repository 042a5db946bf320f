"""How does what is observed reach objects of the program that runs the agent? From a thread for each, in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..signals import Signal
from ..signals.metrics import SeriesStore, points
from ..signals.profiles import Profile
from ..signals.spans import Span
from ..text import one_line, without_credentials
from . import Exporter, PartlyRejected, PipelineExporter
from .delivery.payload import Payload
from .delivery.sender import Accepted, Refused
from .queued import QueuedExporter

if TYPE_CHECKING:
    from .batch import Batch

_TIMEOUT_S = 30.0
_QUEUE_SIZE = 10
_POINT_BYTES, _SAMPLE_BYTES, _SPAN_BYTES = 300, 200, 1_000
"""Roughly what they take in memory while they wait; stacks are shared."""

_METHODS = ("export_metrics", "export_profiles", "export_spans")

_Call = Callable[[], None]


class ObjectExporter(QueuedExporter[_Call]):
    """Hands points, profiles and spans to an object."""

    def __init__(self, exporter: Exporter, name: str) -> None:
        self._metrics = _method(exporter, "export_metrics")
        self._profiles = _method(exporter, "export_profiles")
        self._spans = _method(exporter, "export_spans")
        given: dict[Signal, object] = {"metrics": self._metrics, "traces": self._spans, "profiles": self._profiles}
        self.takes = frozenset(signal for signal, method in given.items() if method is not None)
        super().__init__(name, _Calls(), timeout_s=_TIMEOUT_S, queue_size=_QUEUE_SIZE)

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:  # noqa: ARG002 - points say since when
        """Copy the state of every series and queue it."""
        if self._metrics is not None and (found := list(points(store))):
            self._sender.submit(
                Payload(partial(self._metrics, found), len(found), len(found) * _POINT_BYTES, "metrics")
            )

    def export_spans(self, batch: Batch[Span]) -> None:
        """Queue spans."""
        if self._spans is not None:
            spans = list(batch.items)
            self._sender.submit(Payload(partial(self._spans, spans), len(spans), len(spans) * _SPAN_BYTES, "traces"))

    def export_profiles(self, batch: Batch[Profile]) -> None:
        """Queue profiles."""
        if self._profiles is not None:
            samples = sum(len(profile.samples) for profile in batch.items)
            call = partial(self._profiles, list(batch.items))
            self._sender.submit(Payload(call, samples, samples * _SAMPLE_BYTES, "profiles"))


class _Calls:
    """Makes the calls, in the sender's thread."""

    def send(self, body: _Call, timeout_s: float) -> Accepted | Refused:  # noqa: ARG002 - nobody can interrupt it
        try:
            body()
        except PartlyRejected as error:
            return Accepted(error.points, one_line(without_credentials(str(error))))
        except Exception as error:  # noqa: BLE001 - it is another program's
            reason = one_line(without_credentials(f"{type(error).__name__}: {error}"))
            return Refused(reason, retryable=False, error_type=type(error).__qualname__)
        return Accepted()

    def close(self) -> None:
        """Nothing is held."""


def check(exporters: Sequence[object]) -> None:
    """Raise ConfigError for what is no exporter."""
    for number, exporter in enumerate(exporters):
        if not (_is_of_spans(exporter) or _is_of_metrics(exporter) or _has_a_method(exporter)):
            raise ConfigError(
                f"exporters[{number}]: an object of the type {type(exporter).__name__} is no exporter; give an OpenTelemetry "
                "SDK exporter, or one with a method of otel_gpu.exporters.Exporter"
            )


def wrapped(exporters: Sequence[object]) -> list[PipelineExporter]:
    """Return what hands on to objects: OpenTelemetry SDK exporters, or whatever has a method of `Exporter`."""
    return [wrapped_one(exporter, f"{type(exporter).__name__}/{number}") for number, exporter in enumerate(exporters)]


def wrapped_one(exporter: object, name: str, *, is_ours: bool = False) -> PipelineExporter:
    """Return what hands on to an object under a name; ConfigError where it is no exporter.

    An exporter of the SDK that `is_ours` is shut down at the end.
    """
    if isinstance(exporter, PipelineExporter):
        return exporter
    check([exporter])
    if _is_of_metrics(exporter):
        from .sdk.metrics import SdkExporter

        return SdkExporter(exporter, name, is_ours=is_ours)  # type: ignore[arg-type]
    if _is_of_spans(exporter):
        from .sdk.spans import SdkSpanExporter

        return SdkSpanExporter(exporter, name, is_ours=is_ours)  # type: ignore[arg-type]
    return ObjectExporter(exporter, name)  # type: ignore[arg-type]


def _has_a_method(exporter: object) -> bool:
    return any(hasattr(exporter, name) for name in _METHODS)


def _method(exporter: object, name: str) -> Callable[[object], None] | None:
    """Return a method of an object; None for one that it has of `Exporter`, and that does nothing."""
    if getattr(type(exporter), name, None) is getattr(Exporter, name):
        return None
    found: Callable[[object], None] | None = getattr(exporter, name, None)
    return found


def _is_of_metrics(exporter: object) -> bool:
    return _is_of_sdk(exporter, "opentelemetry.sdk.metrics.export", "MetricExporter")


def _is_of_spans(exporter: object) -> bool:
    return _is_of_sdk(exporter, "opentelemetry.sdk.trace.export", "SpanExporter")


def _is_of_sdk(exporter: object, module: str, name: str) -> bool:
    """Tell whether an object is of one of the SDK's classes, without importing it: who has one has imported it."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(exporter, kind)
