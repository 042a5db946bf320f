"""What does training do to a GPU? Batches come from ordinary memory, go forward and back, and the weights change.

Started by `otel-gpu demo`. What it computes means nothing.
"""

from __future__ import annotations

import ctypes
import threading

from .gpu import Gpu
from .protocol import report, wait_for_go

LAYERS, BATCH_BYTES, WEIGHTS_BYTES = 6, 256 << 10, 32 << 20
STEPS_PER_SECOND, LOSS_EVERY = 12, 10
KERNELS = ("embed_tokens", "attention_forward", "mlp_forward", "attention_backward", "mlp_backward", "adam")


class Trainer:
    """A model that learns."""

    def __init__(self) -> None:
        self.gpu = Gpu(KERNELS)
        self.weights = self.gpu.allocate(WEIGHTS_BYTES)
        self.moments = self.gpu.allocate(2 * WEIGHTS_BYTES)
        self.batch = self.gpu.allocate(BATCH_BYTES)
        # As a data loader gives it that pins nothing.
        self.loaded = ctypes.create_string_buffer(BATCH_BYTES)

    def step(self, number: int) -> None:
        """Learn from one batch."""
        self.gpu.upload(self.batch, ctypes.addressof(self.loaded), BATCH_BYTES)
        activations = self.gpu.borrow(BATCH_BYTES * LAYERS)
        self.forward()
        self.backward()
        self.optimize()
        self.gpu.give_back(activations)
        if number % LOSS_EVERY == 0:
            self.fetch_loss()

    def forward(self) -> None:
        self.gpu.launch("embed_tokens", 512, 256)
        for _ in range(LAYERS):
            self.gpu.launch("attention_forward", 128, 128)
            self.gpu.launch("mlp_forward", 256, 256)

    def backward(self) -> None:
        for _ in range(LAYERS):
            self.gpu.launch("mlp_backward", 256, 256)
            self.gpu.launch("attention_backward", 128, 128)

    def optimize(self) -> None:
        for _ in range(LAYERS):
            self.gpu.launch("adam", 1024, 512)

    def fetch_loss(self) -> None:
        """Look at the loss, for which everything has to be done."""
        loss = ctypes.create_string_buffer(4)
        self.gpu.download(ctypes.addressof(loss), self.batch, len(loss))
        self.gpu.wait()


def main() -> None:
    """Train until told to stop."""
    told_to_stop = wait_for_go()
    trainer = Trainer()
    pause = threading.Event()
    number = 0
    while not told_to_stop.is_set():
        trainer.step(number)
        number += 1
        pause.wait(1 / STEPS_PER_SECOND)
    trainer.gpu.wait()
    report(trainer.gpu.tally)


if __name__ == "__main__":
    main()
