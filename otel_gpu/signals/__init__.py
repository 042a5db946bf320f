"""What flows from receivers to exporters? Metrics, spans and profiles, as frozen values."""

from __future__ import annotations

from typing import Literal

Signal = Literal["metrics", "traces", "profiles"]
SIGNALS: tuple[Signal, ...] = ("metrics", "traces", "profiles")
