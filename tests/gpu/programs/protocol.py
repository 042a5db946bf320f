"""How does an observed program say what it is about to do and what it did? JSON lines; a line on standard input lets it go on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping

Phase = Callable[[], Mapping[str, object]]


def say(event: str, **more: object) -> None:
    """Say something and wait until told to go on."""
    print(json.dumps({"event": event, **more}), flush=True)
    if not sys.stdin.readline():
        sys.exit(1)  # whoever asked is gone


def serve(prepare: Callable[[], list[Phase]]) -> None:
    """Stop before the first CUDA call, before each phase, and after each with what it did."""
    say("started")
    for phase in prepare():
        say("ready")
        say("phase", **phase())
