"""Which certificates are used towards a receiver, and can they be read? Asked before anything is sent.

A file may be exchanged at any time, and be half-written or missing for a moment: each connection reads them anew.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator
from typing import cast

from ...errors import ConfigError
from .connections import Connections
from .settings import OtlpSettings

_MAX_PEM_BYTES = 8 << 20


def authorities(settings: OtlpSettings) -> bytes | None:
    """Return the certificate authorities to trust; None for the system's."""
    return _read(settings.ca_file, "ca_file")


def shown_certificate(address: str, timeout_s: float) -> tuple[bytes, str | None]:
    """Ask a server for its certificate and return it with a name it is for; raises OSError.

    gRPC cannot be told to skip verification, but it can be told to trust this very certificate.
    """
    host, _, port = address.rpartition(":")
    connections = Connections()
    with connections.within(timeout_s):
        anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anyone.check_hostname = False
        anyone.verify_mode = ssl.CERT_NONE
        with _handshake(connections, anyone, host, port) as connection:
            pem = ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"")
        context = ssl.create_default_context(cadata=pem)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # Connecting again with the certificate trusted is what makes the ssl module take it apart.
        with _handshake(connections, context, host, port) as connection:
            certificate = connection.getpeercert() or {}
    names = [value for _, value in cast("tuple[tuple[str, str], ...]", certificate.get("subjectAltName", ()))]
    return pem.encode(), names[0].replace("*", "any") if names else None


@contextlib.contextmanager
def _handshake(connections: Connections, context: ssl.SSLContext, host: str, port: str) -> Iterator[ssl.SSLSocket]:
    name = host.strip("[]")
    with (
        connections.connect(name, int(port), connections.left_s) as plain,
        connections.handle(plain),
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        yield connection


def client_certificate(settings: OtlpSettings) -> tuple[bytes | None, bytes | None]:
    """Return the private key and the certificate chain; the key may lie in the certificate's file."""
    if settings.key_file and not settings.cert_file:
        raise ConfigError("key_file is set without cert_file: give both, or neither")
    chain = _read(settings.cert_file, "cert_file")
    return (_read(settings.key_file, "key_file") if settings.key_file else chain), chain


def check_readable(settings: OtlpSettings) -> None:
    """Raise ConfigError when a certificate that the settings name cannot be read."""
    _read(settings.ca_file, "ca_file")
    client_certificate(settings)


def stamp(settings: OtlpSettings) -> tuple[tuple[int, int, int] | None, ...]:
    """Return what changes with the files that the settings name; empty where they name none."""
    return tuple(_stamp(path) for path in (settings.ca_file, settings.cert_file, settings.key_file) if path)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: str | None, setting: str) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            pem = file.read(_MAX_PEM_BYTES)
    except OSError as error:
        raise ConfigError(f"the {setting} {path!r} cannot be read: {error.strerror}; check the path") from error
    if b"-----BEGIN " not in pem:
        raise ConfigError(f"the {setting} {path!r} holds no PEM certificate or key")
    return pem
