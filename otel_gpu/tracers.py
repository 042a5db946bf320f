"""How does a program's own TracerProvider export the spans that the agent makes? As if its tracer had made them.

    import os
    from opentelemetry.sdk.trace import TracerProvider
    from otel_gpu import Agent, Config, tracers
    from otel_gpu.config import Discovery, InferenceSettings

    config = Config(
        receivers={"inference": InferenceSettings()}, exporters={}, discovery=Discovery(pids=(os.getpid(),))
    )
    with Agent(config, exporters=[tracers.provider_exporter(TracerProvider())]):
        ...

Its sampler is asked, its limits hold, and its processors see every span begin and end. The resource is the provider's
for spans of this process, and their own for spans of others; ids are those that the agent has told to others, and so the
provider's generator is not asked for any. What the SDK does not allow:

- Spans begin and end for it when they are handed over, after the fact: with the times that they have, but not in the
  context, with the baggage, of what they are about.
- The sampler decides span by span. Where it left out a parent, it is told so for the children that follow; of a child
  that comes before its parent it hears what the trace's flags say.
- What a provider does not take that was shut down, or a full BatchSpanProcessor, is not told to anybody.
"""

from __future__ import annotations

import copy
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource as SdkResource
from opentelemetry.sdk.trace import Tracer
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, TracerProvider, set_span_in_context
from opentelemetry.trace import SpanContext as SdkSpanContext

from .errors import ConfigError
from .exporters import PartlyRejected
from .exporters.sdk.spans import (
    parent_context,
    sdk_attributes,
    sdk_context,
    sdk_kind,
    sdk_links,
    sdk_resource,
    sdk_status,
)
from .exporters.wire.identity import SCHEMA_URL, SCOPE_NAME
from .exporters.wire.utf8 import utf8
from .signals.metrics import Resource
from .signals.spans import Span
from .version import __version__

_MAX_REMEMBERED = 10_000
"""Spans of which it is known what the sampler made of them, for children that come later."""

_Key = tuple[bytes, bytes]


def provider_exporter(provider: TracerProvider) -> ProviderExporter:
    """Return what `Agent(exporters=[…])` takes to hand spans to a provider of the SDK; ConfigError for another one."""
    if not isinstance(provider, SdkTracerProvider):
        raise ConfigError(
            f"a {type(provider).__name__} takes no spans that are over; give the TracerProvider of the OpenTelemetry SDK, "
            "which opentelemetry.trace.get_tracer_provider() returns once it is set"
        )
    return ProviderExporter(provider)


class ProviderExporter:
    """Hands spans to a provider. Used by one thread."""

    def __init__(self, provider: SdkTracerProvider) -> None:
        self._provider = provider
        self._known: OrderedDict[_Key, SdkSpanContext] = OrderedDict()
        """What became of the spans that were handed over last."""

    def export_spans(self, spans: Sequence[Span]) -> None:
        """Begin and end every span, parents first; `PartlyRejected` where the provider's parts fail for some."""
        made = self._provider.get_tracer(SCOPE_NAME, __version__, SCHEMA_URL)
        if not isinstance(made, Tracer):
            return  # OTEL_SDK_DISABLED: the program wants no spans
        # The provider keeps the tracer, and may hand it to others: ids and resources are changed of a copy.
        tracer = copy.copy(made)
        resources: dict[Resource, SdkResource] = {}
        failed, why = 0, ""
        for span in _parents_first(spans):
            try:
                self._hand_over(tracer, span, resources)
            except Exception as error:  # noqa: BLE001 - of a sampler or a processor; one span must not cost the others
                failed, why = failed + 1, f"{type(error).__name__}: {error}"
        if failed:
            raise PartlyRejected(failed, f"the TracerProvider's parts failed: {why}")

    def _hand_over(self, tracer: Tracer, span: Span, resources: dict[Resource, SdkResource]) -> None:
        tracer.id_generator = _GivenIds(sdk_context(span.context))
        tracer.resource = self._resource(span.resource, resources)
        context = Context()  # of this thread's own nothing
        parent = self._known.get((span.context.trace_id, span.parent_id)) or parent_context(span)
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(parent), context)
        begun = tracer.start_span(
            utf8(span.name),
            context,
            sdk_kind(span),
            sdk_attributes(span.attributes),
            sdk_links(span),
            span.start_ns,
        )
        if (named := begun.get_span_context()).is_valid:  # not so where a tracer is turned off
            self._remember((span.context.trace_id, span.context.span_id), named)
        begun.set_status(sdk_status(span))
        begun.end(span.end_ns)

    def _remember(self, key: _Key, context: SdkSpanContext) -> None:
        self._known[key] = context
        if len(self._known) > _MAX_REMEMBERED:
            self._known.popitem(last=False)

    def _resource(self, of: Resource, known: dict[Resource, SdkResource]) -> SdkResource:
        found = known.get(of)
        if found is None:
            is_own = dict(of.attributes).get("process.pid") == os.getpid()
            found = known[of] = self._provider.resource if is_own else sdk_resource(of)
        return found


class _GivenIds(IdGenerator):
    """Gives a span the ids that it has."""

    def __init__(self, context: SdkSpanContext) -> None:
        self._context = context

    def generate_span_id(self) -> int:
        return self._context.span_id

    def generate_trace_id(self) -> int:
        return self._context.trace_id

    def is_trace_id_random(self) -> bool:
        return self._context.trace_flags.random_trace_id


def _parents_first(spans: Sequence[Span]) -> Iterator[Span]:
    waiting: dict[_Key, list[Span]] = {}
    for span in spans:
        waiting.setdefault((span.context.trace_id, span.context.span_id), []).append(span)
    for span in spans:
        line: list[Span] = []
        key = span.context.trace_id, span.context.span_id
        # What is taken out is not found again: a span that is its own ancestor ends the line.
        while (above := waiting.pop(key, None)) is not None:
            line += above
            key = key[0], above[0].parent_id
        yield from reversed(line)
