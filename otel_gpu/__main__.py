"""How does the command `otel-gpu` begin, and `python -m otel_gpu`? In isolated mode, before anything else is imported."""

import sys

from . import isolated


def main() -> int:
    """Run the command and return its exit code."""
    isolated.enter("otel_gpu.cli")
    from .cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
