"""What does `python -m otel_gpu` do? The same as the command `otel-gpu`."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
