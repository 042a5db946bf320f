"""How do the exporters of a pipeline get its profiles? Encoded once for all that send bytes, as they are for objects."""

from __future__ import annotations

from collections.abc import Sequence

from ..exporters import SignalExporter
from ..exporters.objects import ObjectExporter
from ..exporters.payload import Payload
from ..exporters.wire.profiles_protobuf import profile_payloads
from ..signals.profiles import Profile
from ..supervision import Component


class ProfileExport:
    """Hands profiles to exporters. Used by one thread at a time."""

    def __init__(
        self, exporters: Sequence[SignalExporter | ObjectExporter], max_request_bytes: int, component: Component
    ) -> None:
        """What fails is noted as the component's failure."""
        self._objects = [e for e in exporters if isinstance(e, ObjectExporter)]
        self._exporters = [e for e in exporters if not isinstance(e, ObjectExporter)]
        self._max_request_bytes = max_request_bytes
        self._component = component

    def export(self, profiles: Sequence[Profile]) -> None:
        """Hand profiles to every exporter."""
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
