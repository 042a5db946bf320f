"""What does a PyTorch training step make of the driver? A few steps of an MLP and of a small transformer.

Prints "ready" once the GPU is initialised and before each further phase, waits for a line on standard input, trains, and
prints "phase". With the mock driver every value is garbage: losses are not looked at.
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


def replay(times: int) -> None:
    """Capture a matrix product and what follows it in a CUDA graph, and launch that."""
    state, weight = torch.zeros(WIDTH, WIDTH, device="cuda"), torch.ones(WIDTH, WIDTH, device="cuda")
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        torch.relu(state @ weight)
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.relu(state @ weight) + 1
    for _ in range(times):
        graph.replay()


def compiled(steps: int) -> None:
    """Run what Inductor compiles, through Triton."""
    step = torch.compile(lambda a, b: torch.relu(a * b + 1).sum(-1))
    for _ in range(steps):
        step(torch.ones(128, 512, device="cuda"), torch.ones(128, 512, device="cuda"))


def report(event: str, phase: int) -> None:
    print(json.dumps({"event": event, "pid": os.getpid(), "phase": phase, "torch": torch.__version__}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--phases", type=int, default=1)
    parser.add_argument("--graphs", type=int, default=0, help="launches of a CUDA graph in each phase")
    parser.add_argument("--compile", action="store_true", help="also what torch.compile makes")
    options = parser.parse_args()
    steps = options.steps

    torch.cuda.init()
    torch.empty(1, device="cuda")
    for phase in range(options.phases):
        report("ready", phase)
        sys.stdin.readline()
        mlp = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).to("cuda")
        gpt = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), Block(), Block(), nn.Linear(WIDTH, VOCABULARY)).to("cuda")
        train(mlp, lambda: torch.randn(32, 64, device="cuda"), steps)
        train(
            gpt, lambda: torch.zeros(BATCH, TOKENS, dtype=torch.long).pin_memory().to("cuda", non_blocking=True), steps
        )
        if options.graphs:
            replay(options.graphs)
        if options.compile:
            compiled(steps)
        torch.cuda.synchronize()
        report("phase", phase)


if __name__ == "__main__":
    main()
