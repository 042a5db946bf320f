"""What does it cost to add up, encode and write profiles? Prints a table, or JSON with --json."""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Callable
from typing import Any

from otel_gpu.exporters.recordings.folded import encode_folded
from otel_gpu.exporters.recordings.html import encode_html
from otel_gpu.exporters.recordings.pprof import encode_pprof
from otel_gpu.exporters.recordings.speedscope import encode_speedscope
from otel_gpu.exporters.wire.profiles_protobuf import encode_profiles, profile_payloads
from otel_gpu.signals.metrics import Resource, attributes
from otel_gpu.signals.profiles import GPU_LAUNCHES, FileMapping, Frame, FrameKind, Profile, ProfileBuilder, Stack

_RESOURCE = Resource(attributes({"service.name": "bench", "process.pid": 1}))


def stacks(count: int, depth: int, locations: int) -> list[Stack]:
    """Return unique stacks over a set of frames, half of them Python's."""
    choose = random.Random(1)
    libraries = [FileMapping(f"/lib/lib{i}.so", build_id=f"{i:040x}", start=0x1000, end=0x900000) for i in range(20)]
    frames = [
        Frame(FrameKind.NATIVE, f"ns::function_{i}(int)", mapping=libraries[i % 20], address=0x1000 + 16 * i)
        if i % 2
        else Frame(FrameKind.CPYTHON, f"Class.method_{i}", f"/app/module_{i % 50}.py", i)
        for i in range(locations)
    ]
    return [tuple(choose.choices(frames, k=depth)) for _ in range(count)]


def build(of: list[Stack]) -> Profile:
    builder = ProfileBuilder(GPU_LAUNCHES, _RESOURCE, 0)
    for stack in of:
        builder.add(stack, 3)
    return builder.build(10**10)


def measure(name: str, run: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Return the least CPU time of several runs, and the size of what came out."""
    best = float("inf")
    result: Any = None
    for _ in range(repeats):
        began = time.process_time()
        result = run()
        best = min(best, time.process_time() - began)
    size = len(result) if isinstance(result, bytes | str) else None
    return {"step": name, "cpu_ms": round(best * 1e3, 1), "bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stacks", type=int, default=10_000)
    parser.add_argument("--depth", type=int, default=30)
    parser.add_argument("--locations", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    made = stacks(options.stacks, options.depth, options.locations)
    profile = build(made)
    request = encode_profiles([profile])
    body = request.SerializeToString()
    rows = [
        measure("add up samples", lambda: build(made), options.repeats),
        measure("OTLP: build message", lambda: encode_profiles([profile]), options.repeats),
        measure("OTLP: serialize", request.SerializeToString, options.repeats),
        measure("OTLP: gzip level 6", lambda: gzip.compress(body, 6), options.repeats),
        measure("OTLP: split to 512 KiB", lambda: profile_payloads([profile], 1 << 19), options.repeats),
        measure("pprof (.pb.gz)", lambda: encode_pprof([profile]), options.repeats),
        measure("folded", lambda: encode_folded([profile]), options.repeats),
        measure("speedscope", lambda: encode_speedscope([profile]), options.repeats),
        measure("flame graph", lambda: encode_html([profile]), options.repeats),
    ]
    if options.json:
        print(json.dumps({"stacks": options.stacks, "depth": options.depth, "rows": rows}))
        return
    print(f"{options.stacks} unique stacks of {options.depth} frames over {options.locations} locations")
    print(f"{'step':24}{'CPU ms':>10}{'µs/stack':>10}{'KiB':>10}")
    for row in rows:
        size = "" if row["bytes"] is None else f"{row['bytes'] / 1024:.0f}"
        print(f"{row['step']:24}{row['cpu_ms']:>10}{row['cpu_ms'] * 1e3 / options.stacks:>10.1f}{size:>10}")


if __name__ == "__main__":
    main()
