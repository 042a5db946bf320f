"""vLLM's own server, as anybody starts it: an API server, and an engine process behind it.

usage: vllm_serve.py DIRECTORY [--graphs] [--compiled DIRECTORY]

Serves a tiny model without weights under the name `tiny`. Prints "ready" with the port and the pids of both, and ends with
its standard input.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from vllm_generate import LONGEST, PROMPTS, make_model, say

_ENGINE = b"VLLM::EngineCor"
_POLL_S = 0.5


def engine_of(server: int) -> int | None:
    """Return the engine process of an API server."""
    for task in Path(f"/proc/{server}/task").glob("*/children"):
        for child in task.read_text().split():
            if Path(f"/proc/{child}/cmdline").read_bytes().startswith(_ENGINE):
                return int(child)
    return None


def is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--graphs", action="store_true", help="torch.compile and CUDA graphs")
    parser.add_argument("--compiled", type=Path, help="where to keep what is compiled, and the model (DIRECTORY)")
    options = parser.parse_args()
    compiled = options.compiled or options.directory
    make_model(compiled / "model")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CACHE_ROOT": str(compiled / "vllm"),
        "TRITON_CACHE_DIR": str(compiled / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(compiled / "inductor"),
    }
    command = [Path(sys.executable).parent / "vllm", "serve", compiled / "model"]
    command += ["--host=127.0.0.1", f"--port={port}", "--served-model-name=tiny", "--load-format=dummy"]
    command += ["--dtype=bfloat16", f"--max-model-len={LONGEST}", f"--max-num-seqs={PROMPTS}"]
    command += ["--gpu-memory-utilization=0.5", "--block-size=16", *([] if options.graphs else ["--enforce-eager"])]
    server = subprocess.Popen(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        while not is_up(port):
            if server.poll() is not None:
                sys.exit(f"vllm serve ended with {server.returncode}")
            time.sleep(_POLL_S)
        say("ready", port=port, server=server.pid, engine=engine_of(server.pid))
        sys.stdin.read()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
