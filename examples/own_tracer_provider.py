"""How do the spans that the agent makes get among those of a program? By its own TracerProvider.

Run: sudo .venv/bin/python examples/own_tracer_provider.py CONFIG [SECONDS]      # a file with a pipeline of traces
"""

from __future__ import annotations

import sys

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from otel_gpu import Agent, Config, OtelGpuError, tracers


def in_a_line(span: ReadableSpan) -> str:
    launches = (span.attributes or {}).get("gpu.cuda.kernel.launch.calls", 0)
    took_ms = (span.end_time - span.start_time) / 1e6
    # Names come from observed programs: with !r they do nothing to a terminal.
    return f"{span.resource.attributes.get('service.name')!r} {span.name!r} {took_ms:.3f} ms {launches} launches\n"


def make_provider() -> TracerProvider:
    """As programs have it: every trace that its caller records, and a tenth of the others."""
    provider = TracerProvider(ParentBased(TraceIdRatioBased(0.1)), Resource.create({"service.name": "example"}))
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=sys.stdout, formatter=in_a_line)))
    return provider


def main(config: Config, duration_s: float) -> None:
    provider = make_provider()
    with Agent(config, exporters=[tracers.provider_exporter(provider)]) as agent:
        print("observing", flush=True)
        agent.wait(duration_s)
    provider.shutdown()  # after the agent has handed over its last spans


if __name__ == "__main__":
    try:
        main(Config.load(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 10)
    except (IndexError, ValueError):
        sys.exit(f"usage: {sys.argv[0]} CONFIG [SECONDS]")
    except OtelGpuError as error:
        sys.exit(str(error))
