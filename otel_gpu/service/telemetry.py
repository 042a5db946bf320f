"""What can otel-gpu emit? Every metric, span and attribute, each declared once.

Declared beside the receiver that measures it (`receivers/*/metrics.py`), or in `signals/` where several parts know it;
`docs/telemetry.md` is what `render()` returns (`make docs`), and a test fails when the two differ. Names are OBI's
(`gpu.cuda.*`) and the semantic conventions' where they have one, units are UCUM, and no unit stands in a name.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..components import registry
from ..discovery.kubernetes import metrics as pod_metrics
from ..errors import ConfigError
from ..receivers.inference import metrics as inference_metrics
from ..receivers.nccl import metrics as nccl_metrics
from ..receivers.rdma import metrics as rdma_metrics
from ..signals import cuda, hardware, hip, self_metrics, telemetry_spans
from ..signals.metrics import MetricSpec
from ..signals.profiles import CHOICES
from ..signals.telemetry import AttributeSpec

if TYPE_CHECKING:
    from ..components import ProcessorFactory, ReceiverFactory

_log = logging.getLogger(__name__)

DECLARED_ATTRIBUTES = (
    *telemetry_spans.ATTRIBUTES,
    *cuda.ATTRIBUTES,
    *hip.ATTRIBUTES,
    *hardware.ATTRIBUTES,
    *rdma_metrics.ATTRIBUTES,
    *nccl_metrics.ATTRIBUTES,
    *pod_metrics.ATTRIBUTES,
    *self_metrics.ATTRIBUTES,
    AttributeSpec(
        "error.type",
        "Why it failed: the CUDA or HIP error code's name, or the class of the failure; of hardware `corrected`, "
        "`uncorrected`, `pcie_replay` or `xid`; of a request its status, or how the connection ended; of a callback `exception`.",
    ),
    AttributeSpec(
        "otel_gpu.reason",
        "Why a request was cut, a launch has no owner, a free had no allocation (`allocated_before`, `implicit`, "
        "`untracked`), a stack was cut short, an attribute was (`reserved`, `malformed`, `too_many`, `shortened`), a "
        "program could not be looked at (`ended`, `not_permitted`, `no_answer`, `too_many`), or its probes came late "
        "(`before_agent`, `delayed`).",
    ),
)
ATTRIBUTES: dict[str, AttributeSpec] = {a.name: a for a in DECLARED_ATTRIBUTES}

GROUPS: dict[str, tuple[MetricSpec, ...]] = {
    "CUDA": cuda.SPECS,
    "HIP": hip.SPECS,
    "Requests": inference_metrics.SPECS,
    "NCCL": nccl_metrics.SPECS,
    "Hardware": hardware.SPECS,
    "RDMA": rdma_metrics.SPECS,
    "Pods": pod_metrics.SPECS,
    "The agent itself": (*self_metrics.SPECS, *pod_metrics.SELF_SPECS),
}
"""The registry, in the order in which the document shows it."""

ALL: dict[str, MetricSpec] = {spec.name: spec for group in GROUPS.values() for spec in group}
"""Every metric by its name."""


def installed() -> dict[str, ReceiverFactory]:
    """Return the receivers that other packages have installed, by type: those that can be imported."""
    return dict(_installed("receivers"))


def installed_processors() -> dict[str, ProcessorFactory]:
    """Return the processors of other packages that measure themselves, in the same way."""
    return {name: factory for name, factory in _installed("processors") if factory.metrics}


def _installed(kind: Literal["receivers", "processors"]) -> Iterator[tuple[str, Any]]:
    for name in registry.names(kind):
        try:
            factory = registry.find(kind, name)
        except ConfigError as e:
            _log.warning("%s", e)
            continue
        if factory is not None:
            yield name, factory


def render(others: Mapping[str, ReceiverFactory] = {}, processors: Mapping[str, ProcessorFactory] = {}) -> str:
    """Return docs/telemetry.md, with what the receivers and processors of other packages measure behind it."""
    lines = [
        "# Telemetry",
        "",
        "Everything otel-gpu emits. Generated from `otel_gpu/service/telemetry.py` by `make docs`; do not edit.",
        "",
        "Every series carries the resource of the process it is about: `service.name`, `process.*`, `container.id`,",
        "`k8s.*`, `host.*`. Sums are cumulative unless `temporality: delta` is asked for; histograms are exponential, at",
        "scale 0.",
    ]
    groups = {**GROUPS, **{f"`{name}`": factory.metrics for name, factory in others.items()}}
    groups |= {f"Processor `{name}`": factory.metrics for name, factory in processors.items()}
    for title, specs in groups.items():
        lines += ["", f"## {title}", "", "| metric | instrument | unit | attributes | stability | what it says |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [
            f"| `{s.name}` | {s.instrument.value} | `{s.unit}` | {_names(s.attributes)} | {s.stability} "
            f"| {s.description} |"
            for s in specs
        ]
    lines += ["", "## Profiles", "", "One OTLP profile a process, type and interval; `otel-gpu run --profiles`, or"]
    lines += ["`otel-gpu record --type` for one.", ""]
    lines += ["| profile | unit | asked for as | stability | what it says |", "|---|---|---|---|---|"]
    lines += [
        f"| `{t.name}` | `{t.unit}` | `{choice}` | {t.stability} | {t.title}: {t.description} |"
        for choice, types in CHOICES.items()
        for t in types
    ]
    lines += [
        f"| `{t.name}` | `{t.unit}` | | {t.stability} | {t.title}: {t.description} |"
        for factory in others.values()
        for t in factory.profiles
    ]
    lines += [
        "",
        "## Spans",
        "",
        "With a `traces` pipeline. What the GPU did stands on them as totals: exact, or left out,",
    ]
    lines += ["as may be what is zero. Times are of the wall clock.", ""]
    lines += ["| span | kind | attributes | stability | what it says |", "|---|---|---|---|---|"]
    lines += [
        f"| `{s.name}` | {s.kind.name} | {_names(s.attributes)} | {s.stability} | {s.description} |"
        for s in (*telemetry_spans.SPANS, *(spec for factory in others.values() for spec in factory.spans))
    ]
    known = {**ATTRIBUTES, **{a.name: a for f in others.values() for a in f.attributes}}
    lines += ["", "## Attributes", "", "| attribute | what it says | values |", "|---|---|---|"]
    lines += [f"| `{a.name}` | {a.description} | {_names(a.values)} |" for _, a in sorted(known.items())]
    return "\n".join(lines) + "\n"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{n}`" for n in names)


if __name__ == "__main__":
    sys.stdout.write(render(installed(), installed_processors()))
