"""How does the command `otel-gpu` begin, and `python -m otel_gpu`? In isolated mode, before anything else is imported."""

import sys

from . import isolated


def main() -> int:
    """Run the command and return its exit code."""
    isolated.enter("otel_gpu.__main__")
    from . import heap

    heap.share()
    from .cli import main as run
    from .cli.exit import end
    from .cli.signals import LastResort

    code = end(run())
    # Python's own end waits for threads and for whatever libraries registered: that has to end as well.
    LastResort().arm()
    return code


if __name__ == "__main__":
    sys.exit(main())
