"""Where does the view listen, and how much does it keep?"""

from __future__ import annotations

from dataclasses import dataclass

HTTP_PORT, GRPC_PORT = 4318, 4317
"""OTLP's own, so that an agent without any configuration finds the view."""
LOOPBACK = "localhost"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of what anybody may send is taken; what is beyond is refused or dropped, and counted."""

    body_bytes: int = 8 << 20
    """Of one request, uncompressed: a few bytes can become messages of fifty each."""
    json_bytes: int = 2 << 20
    """Of one request as JSON, which takes ten times as much to read."""
    series: int = 20_000
    resources: int = 2_000
    spans: int = 100_000
    span_bytes: int = 48 << 20
    """Of all spans' attributes and links."""
    stacks: int = 50_000
    stack_frames: int = 2_000_000
    """Of all stacks, each as often as it stands on one."""
    samples: int = 1_000_000
    attributes: int = 128
    """Of one resource, point or span."""
    text: int = 1_000
    """Characters of a name or a value."""
    links: int = 128
    """Of one span."""


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """What `otel-gpu view` is told."""

    host: str = LOOPBACK
    port: int = HTTP_PORT
    """Of the page and of OTLP over HTTP; 0 takes a free one."""
    grpc_port: int = GRPC_PORT
    token: str = ""
    """Asked of everybody where it is set."""
    keep_s: float = 3600.0
    bounds: Bounds = Bounds()
