"""What does an inference server do to a GPU? Every request has a prompt, which is a prefill, and answers, a token at a time.

Started by `otel-gpu demo`. It knows nothing of otel-gpu: it serves HTTP on this host alone, to the clients of the demo.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .gpu import Gpu, Graph, OutOfMemoryError
from .protocol import report, wait_for_go

LAYERS, WIDTH, VOCABULARY, MAX_BATCH = 8, 1024, 32_000, 8
WEIGHTS_BYTES, KV_BYTES_PER_TOKEN = 64 << 20, 16 << 10
TOO_LONG = 1 << 32
"""Tokens of a prompt that fits no GPU."""
KERNELS = ("embed_tokens", "rms_norm", "qkv_projection", "flash_attention", "paged_attention", "mlp", "sample_token")
PATH = "/v1/completions"
_MAX_BODY = 4096


@dataclass(frozen=True)
class Request:
    """What a client asks for."""

    prompt_tokens: int
    answer_tokens: int
    wants_probabilities: bool


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


class Front(ThreadingHTTPServer):
    """Takes requests, a thread for each connection; the GPU does one after the other."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model: Server | None = None
        self.turn = threading.Lock()

    def answer(self, batch: list[Request]) -> bool:
        """Run a request; False when there is no such memory, or no more work is done."""
        with self.turn:
            if self.model is None:
                return False
            self.model.gpu.use_here()
            try:
                self.model.serve(batch)
            except OutOfMemoryError:
                return False
            return True

    def end(self) -> None:
        """Answer nobody any more."""
        with self.turn:
            self.model = None


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server: Front

    def do_POST(self) -> None:
        """Make the answers that are asked for."""
        try:
            asked = json.loads(self.rfile.read(min(int(self.headers.get("content-length", 0)), _MAX_BODY)))
            one = Request(int(asked["prompt_tokens"]), min(int(asked["max_tokens"]), 64), bool(asked.get("logprobs")))
            answers = max(1, min(int(asked.get("n", 1)), MAX_BATCH))
        except (ValueError, KeyError, TypeError):
            self._say(400, {"error": "prompt_tokens and max_tokens are wanted"})
            return
        if self.server.answer([one] * answers):
            self._say(200, {"choices": answers})
        else:
            self._say(507, {"error": "out of memory"})

    def _say(self, status: int, said: dict[str, object]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until told to stop."""
    front = Front()
    told_to_stop = wait_for_go(str(front.server_port))
    model = front.model = Server()
    threading.Thread(target=front.serve_forever, name="http", daemon=True).start()
    told_to_stop.wait()
    front.end()
    model.gpu.wait()
    report(model.gpu.tally)


if __name__ == "__main__":
    main()
