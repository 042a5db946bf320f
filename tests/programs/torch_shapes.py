"""Which kernels does PyTorch launch for matrix products? Products of many shapes and types, by dozens of cuBLASLt's.

Prints "ready" before each phase, waits for a line on standard input, multiplies, and prints "phase". With the mock driver
every value is garbage: results are not looked at.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys

import torch

ROWS, COLUMNS, INNER = (8, 128, 333), (8, 256, 777), (16, 64, 1000)
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def multiply(dtype: torch.dtype, m: int, n: int, k: int) -> None:
    def matrix(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, device="cuda", dtype=dtype)

    a, b = matrix(m, k), matrix(k, n)
    torch.mm(a, b)
    torch.addmm(matrix(n), a, b)
    torch.mm(a, matrix(n, k).t())
    torch.mm(matrix(k, m).t(), b)
    torch.bmm(a.expand(2, m, k), b.expand(2, k, n))


def report(event: str, phase: int) -> None:
    print(json.dumps({"event": event, "pid": os.getpid(), "phase": phase, "torch": torch.__version__}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--phases", type=int, default=1)
    options = parser.parse_args()

    torch.cuda.init()
    torch.empty(1, device="cuda")
    for phase in range(options.phases):
        report("ready", phase)
        sys.stdin.readline()
        for tensor_cores in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = tensor_cores
            for dtype, m, n, k in itertools.product(TYPES, ROWS, COLUMNS, INNER):
                multiply(dtype, m, n, k)
        torch.cuda.synchronize()
        report("phase", phase)


if __name__ == "__main__":
    main()
