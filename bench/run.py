"""What does otel-gpu cost? Every benchmark, in one table.

Run: make bench, or python -m bench [--quick] [--only NAME ...] [--json FILE]   (root; some 5 minutes)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from bench.ground import UnavailableError
from bench.results import Result, shown, table, unmeasured
from otel_gpu.errors import OtelGpuError

BENCHMARKS = {
    "launch": (15, 3),
    "allocation": (15, 3),
    "ledger": (5, 1),
    "busy_gap": (5, 1),
    "load": (3, 1),
    "footprint": (7, 3),
    "export": (15, 3),
    "names": (3, 1),
    "request_cost": (5, 2),
    "requests": (5, 1),
    "verbs": (7, 1),
    "stacks": (9, 3),
    "first_stack": (3, 1),
    "record_end": (5, 1),
}
"""The modules, each with `measure(rounds)`, and how many rounds they take, properly and quickly."""


def main(argv: list[str] | None = None) -> int:
    """Print each row as it is measured, and the table. Timings are judged in it, never by the exit code: machines differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    options = parser.parse_args(argv)
    if os.geteuid() != 0:
        print("probes can be placed by root only: run it with sudo", file=sys.stderr)
        return 1
    results: list[Result] = []
    for name in options.only:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rounds, few = BENCHMARKS[name]
        measure: Callable[[int], Iterator[Result]] = import_module(f"bench.{name}").measure
        try:
            results += shown(measure(few if options.quick else rounds))
        except (UnavailableError, OtelGpuError) as e:
            results.append(unmeasured(name, str(e)))
    machine = f"Linux {platform.release()}, {platform.machine()}, {os.cpu_count()} CPUs"
    print(f"{machine}\n\n{table(results)}")
    if options.json:
        rows = [asdict(r) | {"verdict": r.verdict} for r in results]
        options.json.write_text(json.dumps({"machine": machine, "results": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
