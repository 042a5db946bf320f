"""What does otel-gpu see? A server and a training loop, the agent, its figures live, and the view; in a checkout also without a GPU."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from ...service import rights
from ..capabilities import keep_only
from ..durations import duration
from ..signals import stop_signals

NAME = "demo"
HELP = "run a server and a training loop, observe them, and show what is seen, in the terminal and in a browser"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "--duration",
        metavar="SECONDS",
        type=duration,
        help="how long (default: until q or Ctrl-C; without a terminal 20 s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        help="the flame graph's file (default: a new .html in the temporary directory)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    from ...exporters.recordings.files import check_output

    if arguments.output is not None:
        check_output(arguments.output)
    needed = rights.of_probes(written=[arguments.output or tempfile.gettempdir()])
    keep_only(needed, arguments, [os.getpid()])
    from . import show

    with stop_signals() as told_to_stop:
        show.show(arguments.duration, arguments.output, told_to_stop)
    return 0
