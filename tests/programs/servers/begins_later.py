"""A server of the standard library that does no GPU work at first.

`/begin` has it map the driver; `/work/ID/TIMES/plain` launches so often, once it has begun, and says hello before.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import ModuleType

_gpu: list[ModuleType] = []


def begin() -> None:
    """Map the driver."""
    import gpu

    gpu.start()
    gpu.say_launches_at_end()
    _gpu.append(gpu)


class Handler(BaseHTTPRequestHandler):
    """Answers with a length, one connection after another."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/begin":
            begin()
        elif self.path.startswith("/work/") and _gpu:
            _, _, request, times, _ = self.path.split("/")
            _gpu[0].launch(int(request), times=int(times))
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"done\n")


def main() -> None:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"event": "ready", "port": server.server_address[1]}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
