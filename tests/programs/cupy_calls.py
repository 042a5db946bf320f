"""What does a CuPy program make of the driver? Elementwise kernels and one of its own, compiled by NVRTC.

Prints "ready" before each phase's work, waits for a line on standard input, then prints what it knows it launched.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import cupy as cp

SOURCE = 'extern "C" __global__ void own_kernel(float *p) { p[threadIdx.x] = 1; }'


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--launches", type=int, default=100)
    parser.add_argument("--phases", type=int, default=1)
    options = parser.parse_args()
    launches, phases = options.launches, options.phases

    # Loads the driver and makes the context, so that an observer finds them.
    cp.cuda.Device(0).synchronize()
    for phase in range(phases):
        print(json.dumps({"event": "ready", "pid": os.getpid(), "phase": phase}), flush=True)
        sys.stdin.readline()
        x = cp.arange(1000, dtype=cp.float32)
        y = x * 2 + 1
        kernel = cp.RawKernel(SOURCE, "own_kernel")
        for _ in range(launches):
            kernel((4,), (64,), (x,))
        cp.asnumpy(y)
        cp.cuda.Device(0).synchronize()
        did = {"kernels": {"own_kernel": {"launches": launches}}}
        print(json.dumps({"event": "phase", "pid": os.getpid(), "phase": phase, **did}), flush=True)


if __name__ == "__main__":
    main()
