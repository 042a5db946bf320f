"""A program that has used the driver, and becomes a server that does GPU work when it is told to.

usage: becomes.py SERVER [ARGUMENT ...]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gpu


def main() -> None:
    name, *arguments = sys.argv[1:]
    gpu.start()
    gpu.launch(1, "background")
    gpu.say(event="waits")
    sys.stdin.readline()
    os.execv(sys.executable, [sys.executable, str(Path(__file__).with_name(f"{name}.py")), *arguments])


if __name__ == "__main__":
    main()
