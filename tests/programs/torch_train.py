"""What does a PyTorch training step make of the driver? A few steps of an MLP and of a small transformer.

Prints "ready" once the GPU is initialised, waits for a line on standard input, trains, and prints "phase". With the
mock driver every value is garbage: losses are not looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, TOKENS, VOCABULARY, BATCH = 64, 4, 16, 256, 4


class Block(nn.Module):
    """Attention written out, so that it needs no kernel that looks at the values."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_in, self.norm_out = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm_in(x)).split(width, 2)
        q, k, v = (t.view(batch, tokens, HEADS, width // HEADS).transpose(1, 2) for t in parts)
        weights = functional.softmax(q @ k.transpose(-2, -1) * (width // HEADS) ** -0.5, dim=-1)
        x = x + self.project((weights @ v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.feed(self.norm_out(x))


def train(model: nn.Module, make_batch, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        model(make_batch()).float().pow(2).mean().backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    steps = parser.parse_args().steps

    torch.cuda.init()
    torch.empty(1, device="cuda")
    print(json.dumps({"event": "ready", "pid": os.getpid(), "phase": 0, "torch": torch.__version__}), flush=True)
    sys.stdin.readline()
    mlp = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).to("cuda")
    gpt = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), Block(), Block(), nn.Linear(WIDTH, VOCABULARY)).to("cuda")
    train(mlp, lambda: torch.randn(32, 64, device="cuda"), steps)
    train(gpt, lambda: torch.zeros(BATCH, TOKENS, dtype=torch.long).pin_memory().to("cuda", non_blocking=True), steps)
    torch.cuda.synchronize()
    print(json.dumps({"event": "phase", "pid": os.getpid(), "phase": 0}), flush=True)


if __name__ == "__main__":
    main()
