"""Who does this program say it is, to receivers and in what it sends?"""

from __future__ import annotations

from ...version import __version__

SCOPE_NAME = "otel_gpu"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions that metric and attribute names follow."""
USER_AGENT = f"otel-gpu/{__version__}"
