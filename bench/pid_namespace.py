"""How does a benchmark see only its own processes? In a pid namespace of its own, as in a container."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.ground import ROOT


def is_own() -> bool:
    """Say whether this process is in a pid namespace that was made for it."""
    return os.getpid() == 1


def run(module: str, *arguments: str) -> int:
    """Run a module's program in a pid namespace of its own and return its exit code."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode
