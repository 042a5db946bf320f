"""What does it cost a server that its requests are followed? Latency and throughput, with and without.

Run: python -m bench.requests [--rounds N]   (root; some minutes)
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import ground
from bench.results import Result, shown, table
from bench.target import Target

SERVER = Path(__file__).parent.parent / "tests" / "programs" / "servers" / "asgi.py"
KINDS = (("uvloop", "httptools"), ("asyncio", "h11"))
CONNECTIONS = 16
SECONDS = 1.5
MESSAGES, MESSAGE_ROUNDS = 20_000, 25
MUST_ADD_US, MUST_HELLO, MUST_WORK, MUST_OTHERS = 30.0, 0.88, 0.97, 0.997


def measure(rounds: int) -> Iterator[Result]:
    """Measure servers that say hello, or work for a millisecond, and one that is not observed while another one is."""
    from tests.e2e.requests import Following

    request_ns = float("inf")
    for loop, parser in KINDS:
        with server(loop, parser) as (pid, port):
            took: dict[str, list[float]] = {}
            for _ in range(rounds):
                for state in ("off", "on"):
                    with ExitStack() as stack:
                        if state == "on":
                            following = stack.enter_context(Following([pid]))
                            following.wait_followed()
                        for what, path, connections in (
                            ("latency", "/work/1/0/plain", 1),
                            ("hello", "/work/1/0/plain", CONNECTIONS),
                            ("work", "/work/1/0/busy", CONNECTIONS),
                        ):
                            said = load(port, path, connections)
                            took.setdefault(f"{what} {state}", []).append(
                                said["p50_us" if what == "latency" else "rate"]
                            )
                            if state == "on":
                                following.take()
        name = f"uvicorn on {loop}, {parser}"
        middle = {key: statistics.median(values) for key, values in took.items()}
        added = middle["latency on"] - middle["latency off"]
        request_ns = min(request_ns, 1e9 / middle["hello off"])
        yield Result(
            f"latency added to a request, p50, {name}",
            f"{middle['latency on']:.0f} µs",
            f"{middle['latency off']:.0f} µs",
            added,
            must=MUST_ADD_US,
            note="hello-world, one connection; the ratio is microseconds",
        )
        for what, must, note in (
            ("hello", MUST_HELLO, f"hello-world, {CONNECTIONS} connections"),
            ("work", MUST_WORK, f"a millisecond of work, {CONNECTIONS} connections"),
        ):
            on, off = middle[f"{what} on"], middle[f"{what} off"]
            pairs = [a / b for a, b in zip(took[f"{what} on"], took[f"{what} off"], strict=True)]
            yield Result(
                f"throughput with / without, {what}, {name}",
                f"{on:.0f}/s",
                f"{off:.0f}/s",
                statistics.median(pairs),
                must=must,
                at_least=True,
                note=note,
            )
    yield others(rounds, request_ns)


def others(rounds: int, request_ns: float) -> Result:
    """Measure what messages cost a process that nobody observes. Of a request they are a part too small for a rate."""
    from tests.e2e.requests import Following

    took: dict[str, list[float]] = {"off": [], "on": []}
    with server(*KINDS[0]) as (pid, _), Target([ground.messages_program()], []) as other:
        for _ in range(rounds):
            for state, values in took.items():
                with ExitStack() as stack:
                    if state == "on":
                        stack.enter_context(Following([pid])).wait_followed()
                    values += [other.do(f"message {MESSAGES}").ns_per_call for _ in range(MESSAGE_ROUNDS)]
    on, off = min(took["on"]), min(took["off"])
    return Result(
        "throughput with / without, a process that is not observed",
        f"{on:.0f} ns",
        f"{off:.0f} ns",
        request_ns / (request_ns + on - off),
        must=MUST_OTHERS,
        at_least=True,
        note=f"a message sent and received over TCP, of which a hello-world request of {request_ns / 1e3:.0f} µs, "
        "whose ratio is given, takes one, while another process's requests are followed",
    )


@contextmanager
def server(*arguments: str) -> Iterator[tuple[int, int]]:
    """Run a server; its process and its port."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(ground.mock_driver()), "MOCKCUDA_STATE": ""}
    with subprocess.Popen([sys.executable, SERVER, *arguments], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process.pid, json.loads(process.stdout.readline())["port"]
        finally:
            process.kill()


def load(port: int, path: str, connections: int) -> dict[str, float]:
    """Have a process of its own ask, and return what it says."""
    command = [sys.executable, "-m", "bench.requests", "--ask", str(port), path, str(connections)]
    said: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return said


def ask(port: int, path: str, connections: int) -> dict[str, float]:
    """Ask for so long over so many connections, and return the middle latency and the rate."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n".encode()
    with selectors.EpollSelector() as selector:
        asked: dict[socket.socket, float] = {}
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ)
            asked[connection] = time.perf_counter()
            connection.sendall(request)
        took: list[float] = []
        began, end = time.perf_counter() + 0.2, time.perf_counter() + 0.2 + SECONDS
        while (now := time.perf_counter()) < end:
            for key, _ in selector.select(1.0):
                connection = key.fileobj  # type: ignore[assignment]
                if b"done\n" not in connection.recv(4096):
                    continue
                now = time.perf_counter()
                if now >= began:
                    took.append(now - asked[connection])
                asked[connection] = now
                connection.sendall(request)
        for connection in asked:
            connection.close()
    return {"p50_us": statistics.median(took) * 1e6, "rate": len(took) / SECONDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ask", nargs=3, metavar=("PORT", "PATH", "CONNECTIONS"))
    options = parser.parse_args()
    if options.ask:
        port, path, connections = options.ask
        print(json.dumps(ask(int(port), path, int(connections))))
        return
    print(table(list(shown(measure(options.rounds)))))


if __name__ == "__main__":
    main()
