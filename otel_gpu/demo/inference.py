"""What does an inference server do to a GPU? Requests become batches, prompts a prefill, answers a token at a time.

Started by `otel-gpu demo`. It knows nothing of otel-gpu and answers nobody: requests are made up here.
"""

from __future__ import annotations

import ctypes
import queue
import random
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from .gpu import Gpu, Graph, OutOfMemoryError
from .protocol import report, wait_for_go

LAYERS, WIDTH, VOCABULARY, MAX_BATCH = 8, 1024, 32_000, 8
WEIGHTS_BYTES, KV_BYTES_PER_TOKEN = 64 << 20, 16 << 10
REQUESTS_PER_SECOND = 200
TOO_LONG = 1 << 32
"""Tokens of a prompt that fits no GPU."""
KERNELS = ("embed_tokens", "rms_norm", "qkv_projection", "flash_attention", "paged_attention", "mlp", "sample_token")


@dataclass(frozen=True)
class Request:
    """What a client asks for."""

    prompt_tokens: int
    answer_tokens: int
    wants_probabilities: bool


class Clients(threading.Thread):
    """Puts requests into the queue, as many clients together do: at random times, of all lengths."""

    def __init__(self, requests: queue.Queue[Request]) -> None:
        super().__init__(name="clients", daemon=True)
        self._requests = requests
        self._dice = random.Random(1)  # noqa: S311 - the same load every time, no secret

    def run(self) -> None:
        dice = self._dice
        while True:
            time.sleep(dice.expovariate(REQUESTS_PER_SECOND))
            tokens = TOO_LONG if dice.random() < 0.005 else dice.choice((32, 128, 128, 512))
            self._requests.put(Request(tokens, dice.choice((4, 8, 16)), dice.random() < 0.1))


class Server:
    """A model on a GPU."""

    def __init__(self) -> None:
        self.gpu = Gpu(KERNELS)
        self.weights = self.gpu.allocate(WEIGHTS_BYTES)
        self.staging = self.gpu.pinned(1 << 20)
        self.tokens = self.gpu.allocate(1 << 20)
        self.load_weights()
        # Decoding launches the same kernels for every token: as a graph, by one call.
        self.decode_graphs = {size: self.capture_decode(size) for size in range(1, MAX_BATCH + 1)}

    def load_weights(self) -> None:
        """Copy the model to the GPU from ordinary memory, as from a file."""
        piece = ctypes.create_string_buffer(8 << 20)
        for offset in range(0, WEIGHTS_BYTES, len(piece)):
            self.gpu.upload(self.weights + offset, ctypes.addressof(piece), len(piece))
        self.gpu.wait()

    def capture_decode(self, batch_size: int) -> Graph:
        return self.gpu.capture(lambda: self.forward(batch_size, "paged_attention"))

    def serve(self, batch: list[Request]) -> None:
        """Answer requests, all of them together."""
        try:
            cache = self.reserve_cache(batch)
        except OutOfMemoryError:
            batch = [r for r in batch if r.prompt_tokens < TOO_LONG]
            if not batch:
                return
            cache = self.reserve_cache(batch)
        self.prefill(batch)
        for step in range(max(r.answer_tokens for r in batch)):
            self.decode(sum(r.answer_tokens > step for r in batch))
        if any(r.wants_probabilities for r in batch):
            self.fetch_probabilities()
        self.gpu.give_back(cache)

    def reserve_cache(self, batch: Iterable[Request]) -> int:
        return self.gpu.borrow(KV_BYTES_PER_TOKEN * sum(r.prompt_tokens + r.answer_tokens for r in batch))

    def prefill(self, batch: list[Request]) -> None:
        """Run the model over the prompts."""
        tokens = sum(r.prompt_tokens for r in batch)
        self.gpu.upload(self.tokens, self.staging, 4 * tokens)
        self.forward(tokens, "flash_attention")
        self.fetch_tokens(len(batch))

    def decode(self, answers: int) -> None:
        """Make one more token of each answer that is not yet complete."""
        self.gpu.replay(self.decode_graphs[answers])
        self.fetch_tokens(answers)

    def forward(self, tokens: int, attention: str) -> None:
        self.gpu.launch("embed_tokens", tokens, 256)
        for _ in range(LAYERS):
            self.attend(tokens, attention)
            self.feed_forward(tokens)
        self.gpu.launch("sample_token", 1, 1024)

    def attend(self, tokens: int, attention: str) -> None:
        self.gpu.launch("rms_norm", tokens, 128)
        self.gpu.launch("qkv_projection", 3 * WIDTH // 64, 256)
        self.gpu.launch(attention, 16 * -(-tokens // 128), 128)

    def feed_forward(self, tokens: int) -> None:
        self.gpu.launch("rms_norm", tokens, 128)
        self.gpu.launch("mlp", 4 * WIDTH // 64, 256)

    def fetch_tokens(self, count: int) -> None:
        self.gpu.download(self.staging, self.tokens, 4 * count)
        self.gpu.wait()

    def fetch_probabilities(self) -> None:
        """Copy to ordinary memory: the mistake that the demo's table shows as `pageable`."""
        logits = ctypes.create_string_buffer(4 * VOCABULARY)
        self.gpu.download(ctypes.addressof(logits), self.tokens, len(logits))


def main() -> None:
    """Serve until told to stop."""
    told_to_stop = wait_for_go()
    server = Server()
    requests: queue.Queue[Request] = queue.Queue()
    Clients(requests).start()
    while not told_to_stop.is_set():
        batch = [requests.get()]
        while len(batch) < MAX_BATCH and not requests.empty():
            batch.append(requests.get())
        server.serve(batch)
    server.gpu.wait()
    report(server.gpu.tally)


if __name__ == "__main__":
    main()
