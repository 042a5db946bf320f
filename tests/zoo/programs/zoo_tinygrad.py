"""tinygrad: kernels of its own compiler, alone and as a graph whose nodes get new parameters at each replay."""

from __future__ import annotations

import os
from importlib.metadata import version

import numpy as np
import phases

os.environ["DEV"] = "CUDA"  # chosen as it is imported
from tinygrad import Tensor, TinyJit

_X = np.random.default_rng(1).random((64, 64), np.float32)


def step(a: Tensor, b: Tensor) -> Tensor:
    x = a
    for _ in range(6):
        x = ((x @ b).relu() + 1).contiguous()
    return x.realize()


def work() -> None:
    a, b = Tensor(_X).realize(), Tensor(_X).realize()
    (a @ b + 1).softmax().numpy()
    # A graph of its own: what is in those that were made before the agent came is not known to it.
    jitted = TinyJit(step)
    for _ in range(5):
        jitted(a, b)


phases.run(work, version("tinygrad"))
