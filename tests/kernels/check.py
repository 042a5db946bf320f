"""Run inside a virtual machine: does the agent count what the mock driver counts? Lines begin with `check: `."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from otel_gpu.bpf.features import probe
from otel_gpu.config.model import Config
from otel_gpu.errors import OtelGpuError, UnsupportedKernelError
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.service.agent import Agent
from otel_gpu.service.recording import Recording
from otel_gpu.signals.metrics import Buckets
from otel_gpu.signals.profiles import CPU, OFF_CPU

TRUTH = "/tmp/truth.json"
STACKS_SINCE = (5, 17)


def main() -> None:
    print(f"check: {os.uname().release} {probe()}", flush=True)
    try:
        with Agent(Config(exporters={"file": FileSettings("/tmp/out")})) as agent:
            subprocess.run(
                ["/work/launch_storm", "--threads", "2", "--launches", "5000", "--memory", "2", "--graphs", "3"],
                env={**os.environ, "MOCKCUDA_TRUTH": TRUTH, "MOCKCUDA_STATE": "/tmp"},
                check=True,
                stdout=subprocess.DEVNULL,
            )
            points = agent.snapshot()
    except OtelGpuError as e:
        print(f"check: FAILED {e}", flush=True)
        return
    with open(TRUTH) as f:
        truth = json.load(f)
    copied = sum(p.value.sum for p in points if p.name == "gpu.cuda.memory.copies" and isinstance(p.value, Buckets))
    found = {
        "launches": _total(points, "gpu.cuda.kernel.launch.calls"),
        "graph kernels": _total(points, "gpu.cuda.graph.kernel.calls"),
        "bytes copied": copied,
    }
    wanted = {
        "launches": truth["launches"]["direct"],
        "graph kernels": truth["launches"]["in_graphs"],
        "bytes copied": sum(side["bytes"] for kind in truth["copies"].values() for side in kind.values()),
    }
    print(f"check: {'EXACT' if found == wanted else 'WRONG'} {found} of {wanted}", flush=True)


def check_stacks() -> None:
    """Walk a program that never rests, where the kernel can."""
    with subprocess.Popen([sys.executable, "-c", "while True: sorted(range(99), key=lambda n: -n)"]) as busy:
        try:
            with Recording(busy.pid, (CPU, OFF_CPU)) as recorder:
                time.sleep(2)
                profiles = recorder.record(8)
                complete, truncated = recorder.truncated
        except OtelGpuError as e:
            release = tuple(int(part) for part in os.uname().release.split(".")[:2])
            expected = isinstance(e, UnsupportedKernelError) and release < STACKS_SINCE
            print(f"check: {'no stacks' if expected else 'FAILED stacks'}: {e}", flush=True)
            for line in getattr(e, "verifier_log", "").splitlines()[-20:]:
                print(f"check:   {line}", flush=True)
            return
        finally:
            busy.kill()
    names = {f.function for p in profiles for s in p.samples for f in s.stack}
    whole = complete > 20 * truncated and {"<module>", "<lambda>", "builtin_sorted"} <= names
    print(f"check: {'STACKS' if whole else 'WRONG'} {complete} complete, {truncated} cut short", flush=True)


def _total(points, name):
    return sum(p.value for p in points if p.name == name)


if __name__ == "__main__":
    main()
    check_stacks()
