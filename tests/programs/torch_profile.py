"""Which Python function made PyTorch launch how often? Training in every place, each function with its own truth.

Says "ready" and waits for a line on standard input, before each phase and at the end; a phase trains in the places that
--what names. Each ends with an event that has the launches of each function, as the mock driver counted them while it
ran, and the bytes of tensors as PyTorch says: made in this phase, and alive.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH, WIDTH = 6, 16, 64
COUNTS: Counter[str] = Counter()
_DRIVER = ctypes.CDLL("libcuda.so.1")
_DUMP = Path(tempfile.gettempdir()) / f"torch-profile-{os.getpid()}.json"


def _launches() -> int:
    _DRIVER.mockcuda_dump(str(_DUMP).encode())
    found = json.loads(_DUMP.read_text())
    _DUMP.unlink()
    return found["launches"]["direct"]


def counted(function: Callable) -> Callable:
    @functools.wraps(function)
    def with_truth(*arguments):
        before = _launches()
        result = function(*arguments)
        COUNTS[function.__name__] += _launches() - before
        return result

    return with_truth


class Rows(Dataset):
    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), float(index))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Training:
    def __init__(self) -> None:
        self.net = Net().to("cuda")
        self.optimizer = torch.optim.AdamW(self.net.parameters())

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        return self.net(batch).pow(2).mean()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


@counted
def main_forward(t: Training) -> torch.Tensor:
    return t.loss(torch.randn(BATCH, WIDTH, device="cuda"))


@counted
def main_backward(loss: torch.Tensor) -> None:
    loss.backward()


@counted
def main_update(t: Training) -> None:
    t.update()


@counted
def checkpointed_backward(t: Training) -> None:
    # Recomputes inside the backward pass, on the engine's thread.
    x = torch.randn(BATCH, WIDTH, device="cuda", requires_grad=True)
    checkpoint(t.loss, x, use_reentrant=True).backward()


@counted
def failing_backward(t: Training) -> None:
    loss = t.loss(torch.randn(BATCH, WIDTH, device="cuda"))
    loss.register_hook(lambda _grad: 1 / 0)
    try:
        loss.backward()
    except ZeroDivisionError:
        return
    raise AssertionError("the hook's exception was lost")


@counted
def thread_forward(t: Training) -> torch.Tensor:
    return t.loss(torch.randn(BATCH, WIDTH, device="cuda"))


@counted
def thread_backward(loss: torch.Tensor) -> None:
    loss.backward()


@counted
def loaded_step(t: Training, batch: torch.Tensor) -> None:
    t.loss(batch.to("cuda")).backward()
    t.update()


@counted
def compiled_step(step: Callable, x: torch.Tensor) -> None:
    step(x, x)


def in_main() -> None:
    t = Training()
    for _ in range(STEPS):
        main_backward(main_forward(t))
        main_update(t)
        failing_backward(t)
        checkpointed_backward(t)


def in_thread() -> None:
    t = Training()

    def work() -> None:
        for _ in range(STEPS):
            thread_backward(thread_forward(t))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def with_loader() -> None:
    t = Training()
    for batch in DataLoader(Rows(), batch_size=BATCH, num_workers=2):
        loaded_step(t, batch)


COMPILED = torch.compile(lambda a, b: torch.relu(a * b + 1).sum(-1))


def compiled() -> None:
    x = torch.ones(128, 512, device="cuda")
    for _ in range(STEPS):
        compiled_step(COMPILED, x)


PLACES = {"main": in_main, "thread": in_thread, "loader": with_loader, "compile": compiled}


def report(event: str, **more: object) -> None:
    print(json.dumps({"event": event, "pid": os.getpid(), **more}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--phases", type=int, default=1)
    parser.add_argument("--what", choices=PLACES, nargs="+", default=["main"])
    options = parser.parse_args()

    torch.cuda.init()
    torch.empty(1, device="cuda")
    kept = []
    for _ in range(options.phases):
        report("ready")
        sys.stdin.readline()
        before = torch.cuda.memory_stats()
        COUNTS.clear()
        for place in options.what:
            PLACES[place]()
        # Something is still there at the end, whether or not this PyTorch keeps workspaces.
        kept.append(torch.ones(1000, device="cuda"))
        torch.cuda.synchronize()
        after = torch.cuda.memory_stats()
        made = after["requested_bytes.all.allocated"] - before.get("requested_bytes.all.allocated", 0)
        alive = after["requested_bytes.all.current"]
        report("phase", launches=COUNTS, tensors={"made": made, "alive": alive})
    report("ready")
    sys.stdin.readline()


if __name__ == "__main__":
    main()
