"""How much of the kernel's memory does an open connection take, and a request in flight?

Run: python -m bench.request_memory [--connections N]   (root)
"""

from __future__ import annotations

import argparse
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench.requests import KINDS, server

if TYPE_CHECKING:
    from otel_gpu.bpf.maps import BpfMap

_DEADLINE_S = 60.0
_ASKED = b"POST /work/1/0/plain HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n"


def charged(table: BpfMap) -> int:
    """Return the bytes that the kernel says a table takes, entries included."""
    with open(f"/proc/self/fdinfo/{table.fd}", encoding="ascii") as said:
        return next(int(line.split()[1]) for line in said if line.startswith("memlock:"))


def measure(connections: int) -> dict[str, tuple[int, int]]:
    """Have so many connections open with a request on each that is never whole; entries and bytes by table."""
    from tests.e2e.requests import Following

    with ExitStack() as stack:
        pid, port = stack.enter_context(server(*KINDS[0]))
        following = stack.enter_context(Following([pid]))
        following.wait_followed()
        tables = {name: following.requests._object.map(name) for name in ("connections", "requests", "python_contexts")}
        before = {name: (following.requests.fill()[name][0], charged(table)) for name, table in tables.items()}
        for _ in range(connections):
            asking = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            asking.sendall(_ASKED % 10)
        deadline = time.monotonic() + _DEADLINE_S
        while following.requests.fill()["requests"][0] < connections and time.monotonic() < deadline:
            time.sleep(0.1)
        return {
            name: (following.requests.fill()[name][0] - before[name][0], charged(table) - before[name][1])
            for name, table in tables.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=500)
    options = parser.parse_args()
    for name, (entries, used) in measure(options.connections).items():
        each = f"{used / entries:,.0f} bytes each" if entries else ""
        print(f"{name:16}{entries:8,} more entries {used:12,} bytes  {each}")


if __name__ == "__main__":
    main()
