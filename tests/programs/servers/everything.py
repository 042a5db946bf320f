"""A server with a request for whatever a span may say: errors, unknown methods, streams of tokens, each kind of GPU work.

`GET /work/NAME+NAME` does work by the names in `WORK`, one after another.
"""

from __future__ import annotations

import functools
import threading
import time
from http.server import BaseHTTPRequestHandler

import gpu
from many_clients import Server

WORK = {
    "launch": functools.partial(gpu.launch, 1),
    "graph": gpu.launch_graph,
    "h2d": functools.partial(gpu.copy_to_device, 1024),
    "d2h": functools.partial(gpu.copy_to_host, 1024),
    "d2d": functools.partial(gpu.copy_on_device, 1024),
    "wait": gpu.wait,
}


class Handler(BaseHTTPRequestHandler):
    """Answers, and does a request's work before."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        _, kind, what = self.path.split("/", 2)
        for name in what.split("+") if kind == "work" else ():
            WORK[name]()
        self._answer(500 if kind == "fails" else 200)

    def do_BREW(self) -> None:
        self._answer(418)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(3):
            gpu.launch(1)
            self.wfile.write(b"d\r\ndata: token\n\n\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"done\n")


def main() -> None:
    gpu.start()
    gpu.say_launches_at_end()
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    gpu.say(event="ready", port=server.server_port)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
