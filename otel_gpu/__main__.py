"""How does the command `otel-gpu` begin, and `python -m otel_gpu`? In isolated mode, before anything else is imported."""

from .runtime import isolated


def main() -> None:
    """Run the command, and end the process with its exit code."""
    isolated.enter("otel_gpu.__main__")
    from .runtime import heap

    heap.share()
    from .cli import main as run
    from .cli.exit import leave

    leave(run())


if __name__ == "__main__":
    main()
