"""How is recorded until there are enough samples? What a program gets of a CPU, and so of ticks, is the host's to say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import Profile, Stack, merge
from tests.e2e.processes import DEADLINE_S

_SLICE_S = 0.5


def record_until(recorder: Recording, is_enough: Callable[[list[Profile]], bool]) -> list[Profile]:
    """Record until it is enough, or patience is at its end: what is missing then is the caller's to say."""
    recorder.prepare()
    deadline = time.monotonic() + DEADLINE_S
    recorder.start()
    found: list[Profile] = []
    while time.monotonic() < deadline and not is_enough(found):
        recorder.wait(_SLICE_S, threading.Event())
        found = merge([*found, *recorder.finish()])
    return found


def record_samples(recorder: Recording, count: int) -> list[Profile]:
    """Record until so many samples were taken of all processes together."""
    return record_until(recorder, lambda profiles: sum(p.total for p in profiles) >= count)


def stacks_of(profiles: list[Profile]) -> list[Stack]:
    """Return the stacks that are in profiles."""
    return [sample.stack for profile in profiles for sample in profile.samples]
