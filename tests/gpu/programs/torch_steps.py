"""What do PyTorch's training steps make of the GPU? CUPTI, NVIDIA's own library, says it, through torch.profiler."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from protocol import Phase, serve

STEPS, WIDTH, BATCH = 20, 512, 64


def _prepare() -> list[Phase]:
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train_step() -> None:
        batch = torch.randn(BATCH, WIDTH).to("cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        loss.item()

    def traced() -> Mapping[str, object]:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(STEPS):
                train_step()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "trace.json"
            profiler.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        kernels = Counter(e["name"] for e in events if e.get("cat") == "kernel")
        copies = [int(e["args"]["bytes"]) for e in events if e.get("cat") == "gpu_memcpy"]
        return {
            "kernels": kernels,
            "copies": [len(copies), sum(copies)],
            "reserved": torch.cuda.memory_reserved(),
        }

    def timed() -> Mapping[str, object]:
        deadline, steps = time.monotonic() + options.seconds, 0
        while time.monotonic() < deadline:
            train_step()
            steps += 1
        return {"steps": steps}

    # The first loads and tunes what later ones find ready.
    return [traced, traced, timed]


parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=0.0, help="how long the last phase trains")
options = parser.parse_args()
serve(_prepare)
