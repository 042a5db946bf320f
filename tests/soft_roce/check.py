"""Run inside a virtual machine with two soft-RoCE devices: is what the agent says of real RDMA true? Lines begin with `check: `."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable

from otel_gpu.config.model import Config
from otel_gpu.config.settings import Discovery
from otel_gpu.errors import OtelGpuError
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.receivers.rdma.settings import RdmaSettings
from otel_gpu.service.agent import Agent
from otel_gpu.signals.metrics import Buckets, Point

DEADLINE_S = 120.0
OK, REMOTE_ACCESS, RNR_RETRIES = "0", "10", "13"
Totals = Counter[tuple[str, ...]]


class Traffic:
    """The program that sends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["/work/traffic"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self._read()

    def do(self, *words: object) -> dict[str, dict[str, int]]:
        """Have it do something, and return what it says of it."""
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, dict[str, int]]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError("traffic ended")
        return json.loads(line)


class Seen:
    """What an agent says."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def totals(self) -> Totals:
        """Add up all metrics of RDMA, by name and by what tells them apart here."""
        found: Totals = Counter()
        for point in self._agent.snapshot():
            if point.name.startswith("rdma."):
                found[_key(point)] += _number(point)
        return found

    def until(self, what: str, condition: Callable[[Totals], bool]) -> Totals:
        """Wait until it says so."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition(totals := self.totals()):
            if time.monotonic() > deadline:
                print(f"check: WRONG not seen in {DEADLINE_S:.0f} s: {what}: {dict(+totals)}", flush=True)
                return totals
            time.sleep(0.2)
        return totals


def _key(point: Point) -> tuple[str, ...]:
    attributes = dict(point.attributes)
    names = (
        "rdma.device",
        "rdma.operation",
        "network.io.direction",
        "rdma.completion.status",
        "rdma.nack.type",
        "rdma.qp.state",
    )
    if point.name.startswith("rdma.port."):
        return point.name, *(str(attributes[n]) for n in names if n in attributes)
    return point.name, *(str(attributes[n]) for n in names[1:] if n in attributes)


def _number(point: Point) -> float:
    return point.value.count if isinstance(point.value, Buckets) else point.value


def _same(what: str, found: object, wanted: object) -> None:
    print(f"check: {'EXACT' if found == wanted else 'WRONG'} {what}: {found} of {wanted}", flush=True)


def check_operations(traffic: Traffic, seen: Seen) -> None:
    """Compare what was sent with what was counted, by operation, bytes and completion."""
    lasting = "rdma.client.operation.duration"
    for command, operation, direction in (
        ("write", "write", "transmit"),
        ("send", "send", "transmit"),
        ("read", "read", "receive"),
        ("extended", "write", "transmit"),
        ("sparse", "write", "transmit"),
    ):
        before = seen.totals()
        done = traffic.do(command, 500, 4096)["completions"]
        completed = before[lasting, operation] + done.get(OK, 0)
        after = seen.until(command, lambda t, n=completed, o=operation: t[lasting, o] >= n)
        found = tuple(
            after[key] - before[key]
            for key in (
                ("rdma.messages", operation, direction),
                ("rdma.io", operation, direction),
                (lasting, operation),
            )
        )
        _same(f"{command}: messages, bytes, completions", found, (500, 500 * 4096, done[OK]))
        if command == "send":
            received = after["rdma.messages", "receive", "receive"] - before["rdma.messages", "receive", "receive"]
            _same("send: received, receives posted", (received, after["rdma.receives.posted",]), (500, 500))


def check_errors(traffic: Traffic, seen: Seen) -> None:
    """Compare how requests that must fail ended."""
    for command, status, name in (
        ("forbidden", REMOTE_ACCESS, "rem_access_err"),
        ("unready", RNR_RETRIES, "rnr_retry_exc_err"),
    ):
        nacks = "rdma.port.nacks", "rxe0", "rnr"
        before = seen.totals()
        _same(f"{command}: the program's own", traffic.do(command)["completions"], {status: 1})
        error = "rdma.completion.errors", name
        after = seen.until(command, lambda t, e=error: t[e] > 0)
        _same(f"{command}: completion errors", after[error] - before[error], 1)
        if command == "unready":
            after = seen.until("rnr nacks", lambda t, n=nacks, b=before: t[n] > b[n])
            _same("unready: rnr nacks above none", after[nacks] - before[nacks] > 0, True)


def check_queues(traffic: Traffic, seen: Seen) -> None:
    """Ask for completions by the functions of a queue of its own, and compare what they are of."""
    lasting, error = ("rdma.client.operation.duration", "write"), ("rdma.completion.errors", "rem_access_err")
    before = seen.totals()
    traffic.do("queue")
    deadline = time.monotonic() + DEADLINE_S
    # Its functions are known from then on, and what completes before they are probed is not seen.
    while seen.totals()[lasting] == before[lasting] and time.monotonic() < deadline:
        traffic.do("write", 1, 8)
    before = seen.totals()
    _same("queue: the program's own", traffic.do("write", 500, 4096)["completions"], {OK: 500})
    after = seen.until("queue", lambda t: t[lasting] >= before[lasting] + 500)
    _same("queue: completions", after[lasting] - before[lasting], 500)
    _same("queue: refused, the program's own", traffic.do("forbidden")["completions"], {REMOTE_ACCESS: 1})
    after = seen.until("queue: refused", lambda t: t[error] > before[error])
    _same("queue: completion errors", after[error] - before[error], 1)


def check_loss(traffic: Traffic, seen: Seen) -> None:
    """Lose packets between the devices, and look for negative acknowledgements for a gap."""
    nacks, sent = ("rdma.port.nacks", "rxe0", "sequence"), ("rdma.port.packets", "rxe0", "transmit")
    subprocess.run(["/usr/sbin/tc", "qdisc", "add", "dev", "v0", "root", "netem", "loss", "2%"], check=True)
    before = seen.totals()
    _same("loss: all arrives in the end", traffic.do("write", 200, 32768)["completions"], {OK: 200})
    after = seen.until("sequence nacks", lambda t: t[nacks] > before[nacks])
    ratio = (after[nacks] - before[nacks]) / (after[sent] - before[sent])
    _same("loss: nacks by packets sent within 0.001 and 0.05", 0.001 < ratio < 0.05, True)
    print(f"check: {after[nacks] - before[nacks]:.0f} nacks of {after[sent] - before[sent]:.0f} packets", flush=True)


def main() -> None:
    """Check all, one after another, by one agent and one program."""
    print(f"check: {os.uname().release} {sorted(os.listdir('/sys/class/infiniband'))}", flush=True)
    early = Traffic()
    early.do("connect")
    traffic = Traffic()
    config = Config(
        receivers={"cuda": CudaSettings(), "rdma": RdmaSettings(processes="all", polls=1_000_000)},
        exporters={"file": FileSettings("/tmp/out")},
        discovery=Discovery(pids=(early.pid, traffic.pid)),
        interval_s=3600.0,
    )
    try:
        with Agent(config) as agent:
            seen = Seen(agent)
            rts = "rdma.qp.state", "rts"
            found = seen.until("older queue pairs", lambda t: t[rts] > 0)
            _same("queue pairs older than the agent", found[rts], 2)
            traffic.do("connect")
            print("check: connected", flush=True)
            deadline = time.monotonic() + DEADLINE_S
            while not seen.totals()["rdma.client.operation.duration", "write"] and time.monotonic() < deadline:
                traffic.do("write", 1, 8)
            check_operations(traffic, seen)
            check_errors(traffic, seen)
            check_queues(traffic, seen)
            check_loss(traffic, seen)
    except (OtelGpuError, EOFError, OSError) as e:
        print(f"check: FAILED {type(e).__name__}: {e}", flush=True)


if __name__ == "__main__":
    main()
