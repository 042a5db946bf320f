"""What does a request cost the agent in Python? From what the kernel saw of it to spans as OTLP, and measurements.

Run: python -m bench.request_cost [--requests N] [--rounds N]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from otel_gpu.bpf.abi.requests import REQUEST
from otel_gpu.exporters.wire.spans_protobuf import span_payloads
from otel_gpu.receivers.inference.assembly import Assembly, Seen
from otel_gpu.receivers.inference.engines import Told
from otel_gpu.receivers.inference.records import HEAD_AT, heads_of, read_request
from otel_gpu.receivers.inference.records import seen as seen_of
from otel_gpu.receivers.inference.request import Endpoint, GpuTotals, GpuWork, Request, WorkKind
from otel_gpu.receivers.inference.server_spans import spans_of
from otel_gpu.receivers.inference.serving_metrics import ServingMetrics
from otel_gpu.runtime import heap
from otel_gpu.signals.metrics import Resource, attributes

if TYPE_CHECKING:
    from bench.results import Result

MUST_US = 20.0
"""At 5,000 requests a second a tenth of a core."""
REQUESTS = 5_000
CHILDREN = 3
_RESOURCE = Resource(attributes({"service.name": "bench", "process.pid": 1, "host.name": "here"}))
_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:8000\r\nUser-Agent: python-requests/2.32\r\n"
    b"Accept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"
    b"traceparent: 00-%032x-%016x-01\r\nContent-Length: 120\r\n%s\r\n"
)
_ANSWER = (
    b"HTTP/1.1 200 OK\r\ndate: Sun, 22 Nov 2026 20:00:%02d GMT\r\nserver: uvicorn\r\n"
    b"content-type: application/json\r\ncontent-length: 300\r\n\r\n"
)


class _Process:
    resource = _RESOURCE


def record(number: int, children: int) -> bytes:
    """Return a request as the kernel tells of it."""
    request = np.zeros(1, REQUEST)[0]
    head, answer = _HEAD % (number + 1, number + 1, b""), _ANSWER % (number % 60)
    for name, value in {
        "id": number + 1,
        "tgid": 1,
        "exec_id": 1,
        "began_ns": 1,
        "ended_ns": 10**6,
        "first_byte_ns": 10**5,
        "request_body": 120,
        "response_body": 300,
        "ending": 1,
        "works": children,
        "address_family": 2,
        "local_port": 8_000,
        "peer_port": 50_000,
        "head_size": len(head),
        "response_size": len(answer),
    }.items():
        request[name] = value
    request["local"][:4] = request["peer"][:4] = [127, 0, 0, 1]
    request["head"][: len(head)] = np.frombuffer(head, np.uint8)
    request["response"][: len(answer)] = np.frombuffer(answer, np.uint8)
    owned = request["owned"]
    owned["launches"], owned["synchronize_ns"], owned["copied_bytes"] = 7 * children, 100_000, (4096, 64, 0)
    for n in range(children):
        work = request["work"][n]
        work["kind"], work["launches"], work["began_ns"], work["ended_ns"] = 1, 7, n * 10 + 1, n * 10 + 5
    return request.tobytes()[: HEAD_AT + len(head)]


def decoded(records: list[bytes]) -> None:
    for one in records:
        request = read_request(one)
        Told(request, None, None).of(seen_of(request, _Process(), int, {}))  # type: ignore[arg-type]
        heads_of(request)


def seen(children: int) -> Seen:
    work = tuple(GpuWork(WorkKind.BATCH, n * 10, n * 10 + 5, GpuTotals(launches=7)) for n in range(children))
    totals = GpuTotals(7 * children, 0, 1, 1, 0, 4096, 64, 0, 100_000)
    ends = (Endpoint("127.0.0.1", 50_000), Endpoint("127.0.0.1", 8_000))
    return Seen(
        1, _RESOURCE, 0, 10**6, peer=ends[0], local=ends[1], request_body_bytes=120, response_body_bytes=300,
        totals=totals, work=work,
    )  # fmt: skip


def made(count: int, children: int, *, new: bool = False) -> list[Request]:
    """Return requests as a client with an SDK makes them; with `new`, no two heads are alike but for their trace."""
    assembly, of = Assembly(), seen(children)
    heads = [_HEAD % (n + 1, n + 1, b"X-Request: %d\r\n" % n if new else b"") for n in range(count)]
    return [assembly.of_http1(of, head, _ANSWER % (n % 60)) for n, head in enumerate(heads)]


def counted(requests: list[Request]) -> None:
    metrics = ServingMetrics()
    for request in requests:
        metrics.add(request)
    metrics.collect()


def best_us(run: Callable[[], object], count: int, rounds: int) -> float:
    """Return the CPU time for each request, of the best round."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best * 1e6 / count


def rows(count: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Yield the steps, and what each takes."""
    heap.share()
    requests, bare = made(count, CHILDREN), made(count, 0)
    spans = list(itertools.chain.from_iterable(map(spans_of, requests)))
    records = [record(number, CHILDREN) for number in range(count)]
    yield "what the kernel tells, read", best_us(lambda: decoded(records), count, rounds)
    yield "heads that were seen before, but for trace and date", best_us(lambda: made(count, CHILDREN), count, rounds)
    yield "heads that were not", best_us(lambda: made(count, CHILDREN, new=True), count, rounds)
    yield "measurements", best_us(lambda: counted(requests), count, rounds)
    yield "a span", best_us(lambda: [spans_of(r) for r in bare], count, rounds)
    yield f"a span with {CHILDREN} children", best_us(lambda: [spans_of(r) for r in requests], count, rounds)
    yield "the same as OTLP", best_us(lambda: span_payloads(spans), count, rounds)


def measure(rounds: int) -> Iterator[Result]:
    """Yield the rows for the table of all benchmarks."""
    from bench.results import Result

    told, again, _, metrics, _, spans, encoded = (us for _, us in rows(REQUESTS, rounds))
    whole = told + again + metrics + spans + encoded
    what = f"a request with {CHILDREN} children, in Python, CPU"
    yield Result(what, f"{whole:.0f} µs", "", whole, unit="µs", must=MUST_US, aim=MUST_US)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("CPU time for each request, of the best round\n")
    for what, us in rows(options.requests, options.rounds):
        print(f"{what:56}{us:>8.1f} µs")


if __name__ == "__main__":
    main()
