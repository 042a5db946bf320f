"""A server of the standard library that many clients may ask at once."""

from __future__ import annotations

from http.server import ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """A thread for each connection; none of them keeps the program from its end."""

    daemon_threads = True
    # With the five of the base class, Linux lets go of what comes at once beyond them.
    request_queue_size = 1024
