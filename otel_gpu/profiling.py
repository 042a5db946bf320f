"""How does a profile reach the exporters? From the receiver, encoded once, an interval's worth at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .config.settings import ProfileSettings
from .exporters import Payload, SignalExporter
from .exporters.objects import ObjectExporter
from .exporters.profile_otlp import profile_payloads
from .receivers.profiles.receiver import ProfileReceiver
from .signals.profiles import CHOICES, Profile, ProfileType
from .supervision import Component, Health

_log = logging.getLogger(__name__)


def types_of(settings: ProfileSettings) -> list[ProfileType]:
    """Return the profile types that the settings ask for."""
    return list(dict.fromkeys(kind for choice in settings.types for kind in CHOICES[choice]))


class ProfilePipeline:
    """Carries profiles from the receiver to exporters. Used by one thread at a time."""

    def __init__(
        self,
        receiver: ProfileReceiver,
        exporters: Sequence[SignalExporter | ObjectExporter],
        max_request_bytes: int,
    ) -> None:
        """`exporters` are those of all pipelines; objects get profiles as they are."""
        self._objects = [e for e in exporters if isinstance(e, ObjectExporter)]
        self._receiver = receiver
        self._exporters = [e for e in exporters if not isinstance(e, ObjectExporter)]
        self._max_request_bytes = max_request_bytes
        self._component = Component("profiles")

    def health(self) -> list[Health]:
        """Say whether profiles are handed on."""
        return [self._component.health()]

    def export(self, *, last: bool = False) -> None:
        """Hand what was sampled since the last export to every exporter; with `last`, all that there is."""
        with self._component:
            profiles = self._receiver.profiles(last=last)
            for one in self._objects:
                with self._component:
                    one.export_profiles(profiles)
            if not self._exporters:
                return
            try:
                payloads = profile_payloads(profiles, self._max_request_bytes)
            except Exception as e:  # noqa: BLE001 - one profile that cannot be encoded must not cost the others
                self._component.note(e)
                payloads = self._one_by_one(profiles)
            for payload in payloads:
                for exporter in self._exporters:
                    exporter.submit("profiles", payload)

    def _one_by_one(self, profiles: Sequence[Profile]) -> list[Payload[bytes]]:
        payloads: list[Payload[bytes]] = []
        for profile in profiles:
            with self._component:
                payloads += profile_payloads([profile], self._max_request_bytes)
        return payloads
