"""What does otel-gpu see? A workload, the agent, and its figures live; in a checkout also without a GPU."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from .. import rights
from .capabilities import keep_only
from .signals import stop_signals
from .times import duration

NAME = "demo"
HELP = "run a workload, observe it, and show what is seen"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--duration", metavar="SECONDS", type=duration, default=20.0, help="how long (default 20)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        help="the flame graph's file (default: a new .html in the temporary directory)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    from ..reporters.files import check_output

    if arguments.output is not None:
        check_output(arguments.output)
    needed = rights.of_probes(written=[arguments.output or tempfile.gettempdir()])
    keep_only(needed, arguments, [os.getpid()])
    from ..demo import show

    with stop_signals() as told_to_stop:
        show.show(arguments.duration, arguments.output, told_to_stop)
    return 0
