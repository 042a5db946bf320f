"""What is kept of all that comes in? Series, spans and profiles with their resources, under one lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .attributes import AttributeReader
from .losses import Losses
from .profile_store import ProfileStore
from .resources import Resources
from .series import SeriesStore
from .settings import ViewSettings
from .spans import SpanStore
from .timelines import NS


class Store:
    """All of it. Whoever touches a part holds `lock`."""

    def __init__(self, settings: ViewSettings, clock: Callable[[], int] = time.time_ns) -> None:
        bounds = settings.bounds
        self.now_ns = clock
        self.began_ns = clock()
        self.keep_s = settings.keep_s
        self.lock = threading.RLock()
        self.losses = Losses()
        self.reader = AttributeReader(bounds, self.losses)
        self.resources = Resources(bounds, self.losses)
        self.series = SeriesStore(bounds, self.losses, settings.keep_s, self.began_ns)
        self.spans = SpanStore(bounds, self.losses, settings.keep_s)
        self.profiles = ProfileStore(bounds, self.losses, settings.keep_s)
        self._swept_ns = self.began_ns

    def sweep(self) -> int:
        """Let time pass and forget what is too old; return the time."""
        now_ns = self.now_ns()
        self.series.sweep(now_ns)
        if now_ns - self._swept_ns > 10 * NS:
            self._swept_ns = now_ns
            self.spans.sweep(now_ns)
            self.profiles.sweep(now_ns)
            used = self.series.resources() | self.spans.resources() | self.profiles.resources()
            self.resources.keep_only(used, now_ns - 60 * NS)
        return now_ns
