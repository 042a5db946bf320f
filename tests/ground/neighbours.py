"""Who else is on this host? Programs on the mock driver and hogs of the CPU, beside which all tests have to pass.

    python3 tests/ground/neighbours.py --seconds 600      # then, in another terminal, make test

Four programs launch, copy, allocate, wait and fail in every way that the tests' own do, come and go, and map the very
file that these map; four processes compute for ever. What they do is nobody's expectation.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_TESTS = Path(__file__).parent.parent
_GROUND = _TESTS / "ground" / "setup.sh"
_ROUND = (
    "--threads",
    "2",
    "--launches",
    "20000",
    "--memory",
    "20",
    "--graphs",
    "200",
    "--errors",
    "20",
    "--pause",
    "0.5",
)
_POLL_S = 0.2


def main() -> int:
    """Keep them all running until the time is over or a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=4)
    parser.add_argument("--hogs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=600.0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    mock, programs = (_part(name) for name in ("mock", "programs"))
    environment = {**os.environ, "LD_LIBRARY_PATH": mock, "MOCKCUDA_TRUTH": "", "MOCKCUDA_STATE": ""}
    with contextlib.ExitStack() as stack:
        for _ in range(arguments.hogs):
            stack.enter_context(_running([sys.executable, "-c", "while True: pass"], os.environ))
        running: list[subprocess.Popen[bytes] | None] = [None] * arguments.programs
        phases = itertools.cycle(("3", "20", "60"))
        end = time.monotonic() + arguments.seconds
        while time.monotonic() < end:
            for number, program in enumerate(running):
                if program is None or program.poll() is not None:
                    command = [f"{programs}/launch_storm", *_ROUND, "--phases", next(phases)]
                    running[number] = stack.enter_context(_running(command, environment))
            time.sleep(_POLL_S)
    return 0


def _part(name: str) -> str:
    done = subprocess.run([_GROUND, name], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip().split("\t")[-1]


@contextlib.contextmanager
def _running(command: list[str], environment: os._Environ[str] | dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
