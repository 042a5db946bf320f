"""How does a shell complete this command? By a script of its own, which lies here ready."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

NAME = "completion"
HELP = "print the script by which a shell completes this command"

SHELLS = {"bash": "otel-gpu", "zsh": "_otel-gpu", "fish": "otel-gpu.fish"}
"""The file of each; `scripts/command_files.py` writes them from the parser."""
FILES = Path(__file__).parent / "completions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "shell",
        choices=tuple(SHELLS),
        help='bash: eval "$(otel-gpu completion bash)" in ~/.bashrc; zsh: into a file _otel-gpu on $fpath; fish: into '
        "~/.config/fish/completions/otel-gpu.fish",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    sys.stdout.write((FILES / SHELLS[arguments.shell]).read_text())
    return 0
