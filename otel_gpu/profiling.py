"""How does a profile reach the exporters? From the receiver, encoded once, an interval's worth at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .config import ProfileSettings
from .exporters import SignalExporter
from .exporters.profile_otlp import profile_payloads
from .profiles import CHOICES, ProfileType
from .receivers.profile import ProfileReceiver

_log = logging.getLogger(__name__)


def types_of(settings: ProfileSettings) -> list[ProfileType]:
    """Return the profile types that the settings ask for."""
    return list(dict.fromkeys(kind for choice in settings.types for kind in CHOICES[choice]))


class ProfilePipeline:
    """Carries profiles from the receiver to exporters. Used by one thread at a time."""

    def __init__(self, receiver: ProfileReceiver, exporters: Sequence[SignalExporter], max_request_bytes: int) -> None:
        self._receiver = receiver
        self._exporters = exporters
        self._max_request_bytes = max_request_bytes

    def export(self, *, last: bool = False) -> None:
        """Hand what was sampled since the last export to every exporter; with `last`, all that there is."""
        profiles = self._receiver.profiles(last=last)
        for payload in profile_payloads(profiles, self._max_request_bytes):
            for exporter in self._exporters:
                exporter.submit("profiles", payload)
