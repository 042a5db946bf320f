"""With what do servers of the tests speak TLS?"""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody believes in, and its key, in one file."""
    directory = tmp_path_factory.mktemp("tls")
    key, signed, both = (directory / name for name in ("key.pem", "certificate.pem", "both.pem"))
    asked = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -keyout {key}"
    subprocess.run([*asked.split(), "-out", str(signed)], check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + signed.read_bytes())
    return both


def unchecked() -> ssl.SSLContext:
    """Return what a client that believes every server has."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
