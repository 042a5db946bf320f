"""Who asks the demo's server? Many clients together, at random times, for answers of all lengths. Started by `otel-gpu demo`."""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
import time

from .inference import PATH, TOO_LONG

CONNECTIONS, REQUESTS_PER_SECOND = 4, 40
_TIMEOUT_S = 30


def ask(port: int, seed: int) -> None:
    """Ask for as long as there is somebody to answer."""
    dice = random.Random(seed)  # noqa: S311 - the same load every time, no secret
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    while True:
        time.sleep(dice.expovariate(REQUESTS_PER_SECOND / CONNECTIONS))
        asked = {
            "prompt_tokens": TOO_LONG if dice.random() < 0.01 else dice.choice((32, 128, 128, 512)),
            "max_tokens": dice.choice((4, 8, 16)),
            "n": dice.choice((1, 1, 2, 4)),
            "logprobs": dice.random() < 0.1,
        }
        try:
            connection.request("POST", PATH, json.dumps(asked), {"content-type": "application/json"})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()


def main() -> None:
    """Ask until the demo, which holds the other end of standard input, ends."""
    for seed in range(CONNECTIONS):
        threading.Thread(target=ask, args=(int(sys.argv[1]), seed), name=f"client-{seed}", daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
