"""What does an inference server do to a GPU, when it is written in PyTorch? A small transformer that makes tokens.

Started by `otel-gpu demo` where there are a GPU and PyTorch. What it computes means nothing.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .protocol import report, wait_for_go

LAYERS, WIDTH, HEADS, VOCABULARY, PROMPT, ANSWER = 8, 512, 8, 8192, 128, 16
Tensor = Any
"""torch's, which the type checker of this package does not see."""


def layer() -> dict[str, nn.Module]:
    """Return the parts of one layer."""
    return {
        "norm_in": nn.LayerNorm(WIDTH),
        "qkv": nn.Linear(WIDTH, 3 * WIDTH),
        "project": nn.Linear(WIDTH, WIDTH),
        "norm_out": nn.LayerNorm(WIDTH),
        "feed": nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)),
    }


def attend(part: dict[str, nn.Module], x: Tensor) -> Tensor:
    """Attend, written out, so that every step is a kernel."""
    batch, tokens, width = x.shape
    q, k, v = (
        t.view(batch, tokens, HEADS, width // HEADS).transpose(1, 2)
        for t in part["qkv"](part["norm_in"](x)).split(width, 2)
    )
    weights = functional.softmax(q @ k.transpose(-2, -1) * (width // HEADS) ** -0.5, dim=-1)
    return x + part["project"]((weights @ v).transpose(1, 2).reshape(batch, tokens, width))


def feed_forward(part: dict[str, nn.Module], x: Tensor) -> Tensor:
    """Run the second half of a layer."""
    return x + part["feed"](part["norm_out"](x))


def model() -> Callable[[Tensor], Tensor]:
    """Return what turns tokens into the next one's logits."""
    embedding = nn.Embedding(VOCABULARY, WIDTH).cuda()
    head = nn.Linear(WIDTH, VOCABULARY).cuda()
    layers = [{name: part.cuda() for name, part in layer().items()} for _ in range(LAYERS)]

    def forward(tokens: Tensor) -> Tensor:
        x = embedding(tokens)
        for part in layers:
            x = feed_forward(part, attend(part, x))
        return head(x[:, -1])

    return forward


def generate(forward: Callable[[Tensor], Tensor], prompts: Tensor, told_to_stop: threading.Event) -> None:
    """Answer a batch of prompts, a token at a time."""
    tokens = prompts.pin_memory().cuda(non_blocking=True)
    for _ in range(ANSWER):
        if told_to_stop.is_set():
            return
        chosen = forward(tokens).argmax(-1, keepdim=True)
        tokens = torch.cat((tokens, chosen), 1)
        # The copy that clients wait for; to ordinary memory, as most programs do it.
        chosen.cpu()


def main() -> None:
    """Generate until told to stop."""
    told_to_stop = wait_for_go()
    forward, dice = model(), random.Random(1)  # noqa: S311 - the same load every time, no secret
    with torch.inference_mode():
        while not told_to_stop.is_set():
            prompts = torch.zeros(dice.randint(1, 8), PROMPT, dtype=torch.long)
            generate(forward, prompts, told_to_stop)
    torch.cuda.synchronize()
    report({})


if __name__ == "__main__":
    main()
