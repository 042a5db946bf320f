from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.bpf.abi.requests import CALLBACK_TOLD, REQUEST
from otel_gpu.bpf.abi.requests import CallbackKind as KernelCallback
from otel_gpu.receivers.inference.assembly import Assembly, Seen
from otel_gpu.receivers.inference.callbacks import callback_of
from otel_gpu.receivers.inference.request import Callback, CallbackKind, Ending, GpuTotals
from otel_gpu.receivers.inference.server_spans import spans_of
from otel_gpu.receivers.inference.serving_metrics import ServingMetrics
from otel_gpu.signals import telemetry_spans
from otel_gpu.signals.metrics import Resource
from otel_gpu.signals.spans import SpanKind, SpanStatus

SENDER = bytes(range(16))
MAKER = 0x7F00_1234_5678
NUMBERED = struct.pack("<qqQQQ16s", 1, 2, 7, 9, MAKER, SENDER)
BEFORE_HUMBLE = struct.pack("<qqQ24s", 1, 2, MAKER, SENDER.ljust(24, b"\0"))
OF_SERVICE = struct.pack("<qq16sq", 1, 2, SENDER, 7)
RESOURCE = Resource((("service.name", "robot"),))


def told(message: bytes, maker: int = MAKER) -> bytes:
    return struct.pack("<Q", maker) + message[: CALLBACK_TOLD["message"].itemsize].ljust(
        CALLBACK_TOLD["message"].itemsize, b"\0"
    )


def read(kind: KernelCallback, name: bytes = b"/scan", message: bytes = b"") -> Callback:
    request = np.zeros((), REQUEST)
    request["status"] = kind
    return callback_of(request[()], name, message)


def seen(**more: object) -> Seen:
    return Seen("robot", RESOURCE, 1_000, 5_000, totals=GpuTotals(launches=3), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        (KernelCallback.SUBSCRIPTION, told(NUMBERED), f"{SENDER.hex()}:7"),
        (KernelCallback.SUBSCRIPTION, told(BEFORE_HUMBLE), ""),
        (KernelCallback.SUBSCRIPTION, told(NUMBERED, maker=0), ""),
        (KernelCallback.SUBSCRIPTION, told(NUMBERED[:16] + b"\xff" * 8 + NUMBERED[24:]), ""),
        (KernelCallback.SERVICE, told(OF_SERVICE), f"{SENDER.hex()}:7"),
        (KernelCallback.CLIENT, told(OF_SERVICE), f"{SENDER.hex()}:7"),
        (KernelCallback.SERVICE, b"", ""),
        (KernelCallback.TIMER, b"", ""),
    ],
)
def test_messages_are_known_by_who_sent_them_and_their_number(
    kind: KernelCallback, message: bytes, expected: str
) -> None:
    assert read(kind, message=message).message_id == expected


@pytest.mark.parametrize("name", [b"/a b", b"", b"\x1b[2J", b"/\xff", b"x" * 256, b"/a\n"])
def test_what_is_no_name_is_none(name: bytes) -> None:
    assert read(KernelCallback.SUBSCRIPTION, name).name == ""


@given(st.sampled_from([k for k in KernelCallback if k]), st.binary(max_size=300), st.binary(max_size=70))
def test_whatever_a_program_says_makes_spans_that_are_declared(kind: KernelCallback, name: bytes, raw: bytes) -> None:
    made = Assembly().of_callback(seen(), read(kind, name, raw))
    (span,) = spans_of(made)

    assert telemetry_spans.declaration(span) is not None
    assert span.name.isascii()
    assert span.name.isprintable()


@pytest.mark.parametrize(
    ("kind", "name", "span_kind"),
    [
        (CallbackKind.SUBSCRIPTION, "process /scan", SpanKind.CONSUMER),
        (CallbackKind.SERVICE, "/scan", SpanKind.SERVER),
        (CallbackKind.CLIENT, "callback client", SpanKind.INTERNAL),
        (CallbackKind.TIMER, "callback timer", SpanKind.INTERNAL),
        (CallbackKind.WAITABLE, "callback waitable", SpanKind.INTERNAL),
    ],
)
def test_each_kind_has_its_span(kind: CallbackKind, name: str, span_kind: SpanKind) -> None:
    (span,) = spans_of(Assembly().of_callback(seen(), Callback(kind, "/scan")))

    assert (span.name, span.kind, span.status) == (name, span_kind, SpanStatus.UNSET)
    assert dict(span.attributes)["gpu.cuda.kernel.launch.calls"] == 3
    assert telemetry_spans.declaration(span) is not None


@pytest.mark.parametrize(
    ("ending", "error", "cut", "status"),
    [
        (Ending.EXCEPTION, "exception", None, SpanStatus.ERROR),
        (Ending.PROTOCOL_LOST, None, "protocol_lost", SpanStatus.UNSET),
        (Ending.AGENT_ENDED, None, "agent_ended", SpanStatus.UNSET),
    ],
)
def test_a_callback_that_did_not_return_says_so(
    ending: Ending, error: str | None, cut: str | None, status: SpanStatus
) -> None:
    (span,) = spans_of(Assembly().of_callback(seen(ending=ending), Callback(CallbackKind.TIMER)))
    attributes = dict(span.attributes)

    assert (attributes.get("error.type"), attributes.get("otel_gpu.cut"), span.status) == (error, cut, status)


def test_a_program_that_makes_up_topics_has_few_of_them_in_metrics() -> None:
    metrics, assembly = ServingMetrics(), Assembly()
    for number in range(300):
        metrics.add(assembly.of_callback(seen(), Callback(CallbackKind.SUBSCRIPTION, f"/topic_{number}")))
    found = [m for m in metrics.collect() if m.metric.name == "otel_gpu.callback.duration"]
    topics = {dict(m.attributes)["messaging.destination.name"]: m.value for m in found}

    assert len(topics) == 101
    assert topics["other"].count == 200  # type: ignore[union-attr]


def test_what_was_cut_is_counted_and_in_no_histogram() -> None:
    metrics = ServingMetrics()
    metrics.add(Assembly().of_callback(seen(ending=Ending.PROTOCOL_LOST), Callback(CallbackKind.TIMER)))

    (found,) = metrics.collect()
    assert found.metric.name == "otel_gpu.requests.cut"
