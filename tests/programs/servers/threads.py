"""A server of the standard library, a thread for each connection, whose requests do GPU work in several ways.

`/work/ID/TIMES/HOW`: so many launches, by the thread itself, by an executor, by a thread of its own.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import gpu
from many_clients import Server

POOL = ThreadPoolExecutor(4)


def work(request: int, times: int, how: str) -> None:
    """Do a request's work."""
    match how:
        case "pool":
            POOL.submit(gpu.launch, request, times=times).result()
        case "thread":
            thread = threading.Thread(target=gpu.launch, args=(request,), kwargs={"times": times})
            thread.start()
            thread.join()
        case "copies":
            gpu.launch(request, times=times)
            gpu.copy(1024)
            gpu.wait()
        case _:
            gpu.launch(request, times=times)


class Handler(BaseHTTPRequestHandler):
    """Answers with a length, or in chunks."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        _, _, request, times, how = self.path.split("?")[0].split("/")
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else b""
        work(int(request), int(times), how)
        if how == "chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for n in range(3):
                gpu.launch(int(request))
                part = f"part {n}\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
            return
        answer = b"done %d\n" % len(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        self.do_GET()


def main() -> None:
    gpu.start()
    gpu.say_launches_at_end()
    server = Server(("127.0.0.1", 0), Handler)
    stop = threading.Event()

    def background() -> None:
        while not stop.wait(0.001):
            gpu.launch(1, "background")

    if "background" in sys.argv:
        threading.Thread(target=background, daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    gpu.say(event="ready", port=server.server_port)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
