"""How long may a property test look, and who reads strangers' files? Children that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from otel_gpu.sandbox.parsers import Parsers

# Shorter than hypothesis would: the whole suite is to take seconds.
settings.register_profile("unit", max_examples=40, deadline=None)
settings.load_profile("unit")


@pytest.fixture(scope="session")
def parsers() -> Iterator[Parsers]:
    with Parsers() as running:
        yield running
