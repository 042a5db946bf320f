"""What does a program do with what the agent sees? An exporter of its own, in place of a collector.

Run: sudo .venv/bin/python examples/own_exporter.py PID [SECONDS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from otel_gpu import Agent, Config, OtelGpuError, Point
from otel_gpu.config import Discovery
from otel_gpu.exporters import Exporter


class Copies(Exporter):
    """Prints what was copied to and from GPUs, once an interval."""

    def export_metrics(self, points: Sequence[Point]) -> None:
        calls, sizes = Counter(), Counter()
        for point in points:
            if point.name == "gpu.cuda.memory.copies":
                kind = dict(point.attributes)["cuda.memcpy.kind"]
                calls[kind] += point.value.count
                sizes[kind] += point.value.sum
        for kind, size in sizes.items():
            print(f"{kind} {calls[kind]} copies {size} bytes", flush=True)


def main(pid: int, duration_s: float) -> None:
    config = Config(exporters={}, discovery=Discovery(pids=(pid,)), interval_s=1)
    with Agent(config, exporters=[Copies()]) as agent:
        print(f"observing {pid}", flush=True)
        agent.wait(duration_s)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 10)
    except (IndexError, ValueError):
        sys.exit(f"usage: {sys.argv[0]} PID [SECONDS]")
    except OtelGpuError as error:
        sys.exit(str(error))
