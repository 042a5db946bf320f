"""How many kernels does a process launch? The agent inside another program, read without any exporter.

Run: sudo .venv/bin/python examples/launches_by_kernel.py PID [SECONDS]
"""

from __future__ import annotations

import sys

from otel_gpu import Agent, Config, OtelGpuError
from otel_gpu.config import CudaSettings, Discovery


def main(pid: int, duration_s: float) -> None:
    config = Config(receivers={"cuda": CudaSettings()}, exporters={}, discovery=Discovery(pids=(pid,)))
    with Agent(config) as agent:
        # True when the process ended before the time was over.
        agent.wait(duration_s)
        for point in agent.snapshot():
            if point.name == "gpu.cuda.kernel.launch.calls":
                print(f"{point.value:>12,} {dict(point.attributes)['cuda.kernel.name']}")


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 10)
    except (IndexError, ValueError):
        sys.exit(f"usage: {sys.argv[0]} PID [SECONDS]")
    except OtelGpuError as error:
        sys.exit(str(error))
