"""Does a receiver take what is to be sent to it? A real request without anything in it, as all others go: protocol, TLS, headers."""

from __future__ import annotations

import re

from ...bpf.needs import Check
from ...signals import Signal
from ...text import endpoint_without_credentials
from ..delivery.sender import Refused
from .endpoint import target
from .exporter import transport
from .settings import OtlpSettings

_TRIED_S = 5.0
_NOTHING = {"grpc": b"", "http/protobuf": b"", "http/json": b"{}"}
_TLS = re.compile(r"TLS|SSL|certificate|handshake", re.IGNORECASE)
_NO_RIGHT = re.compile(r"UNAUTHENTICATED|PERMISSION_DENIED|\b40[13]\b")


def tried(component: str, settings: OtlpSettings, signal: Signal) -> Check:
    """Send nothing at all, and say what became of it."""
    to = target(settings, signal)
    # A query may hold a credential.
    shown = endpoint_without_credentials(to.address.partition("?")[0])
    how = f"{settings.protocol} with TLS" if to.tls else settings.protocol
    name, what = f"endpoint {component}", f"{signal} to {shown} by {how}"
    sending = transport(to, settings)
    try:
        answer = sending.send(_NOTHING[settings.protocol], min(settings.timeout_s, _TRIED_S))
    finally:
        sending.close()
    if not isinstance(answer, Refused) and not answer.rejected and "not OTLP" not in answer.message:
        return Check(name, ok=True, required=False, detail=f"{what}: accepted")
    reason = answer.reason if isinstance(answer, Refused) else answer.message
    return Check(name, ok=False, required=False, detail=f"{what}: {reason}", fix=_fix(component, settings, reason))


def _fix(component: str, settings: OtlpSettings, reason: str) -> str:
    """Name what to set, where it is set for this endpoint."""
    by = settings.endpoint_said_by
    if "a Collector takes" in reason:
        return f"change the receiver's configuration, or where this goes: {by}"
    if _NO_RIGHT.search(reason):
        said = "OTEL_EXPORTER_OTLP_HEADERS" if settings.named_by_variables else f"exporters.{component}.headers"
        return f"give what it asks for by {said}"
    if _TLS.search(reason):
        if settings.named_by_variables:
            return f"see that {by} begins with the right one of http:// and https://; certificates: OTEL_EXPORTER_OTLP_CERTIFICATE"
        return (
            f"see that {by} begins with the right one of http:// and https://; certificates: exporters.{component}.tls"
        )
    return f"start a collector there, or say where one is by {by}; data is retried until it answers"
