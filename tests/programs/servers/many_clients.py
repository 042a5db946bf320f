"""A server of the standard library that many clients may ask at once."""

from __future__ import annotations

import ssl
import sys
from http.server import ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """A thread for each connection; none of them keeps the program from its end."""

    daemon_threads = True
    # With the five of the base class, Linux lets go of what comes at once beyond them.
    request_queue_size = 1024

    def get_request(self):
        """Accept; `tls` and a certificate with its key among the program's arguments make it HTTPS."""
        connection, address = super().get_request()
        if certificate := certificate_asked():
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # The handshake is the connection's thread's, at its first read.
            connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address


def certificate_asked() -> str | None:
    """Return the file with the certificate and its key that the program's arguments name behind `tls`."""
    return sys.argv[sys.argv.index("tls") + 1] if "tls" in sys.argv else None
