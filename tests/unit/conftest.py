"""How long may a property test look? Shorter here than hypothesis would: the whole suite is to take seconds."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", max_examples=40, deadline=None)
settings.load_profile("unit")
