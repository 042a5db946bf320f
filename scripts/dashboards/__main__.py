"""What are Grafana's dashboards? Written as JSON into the directory that is named, or deploy/grafana/."""

from __future__ import annotations

import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from . import agent, communication, fleet, inference, memory, node, process
from .board import Board

BOARDS: tuple[Board, ...] = tuple(
    module.BOARD for module in (fleet, node, process, memory, inference, communication, agent)
)
DIRECTORY = Path(__file__).parents[2] / "deploy" / "grafana"


def text(board: Board) -> str:
    """Return what stands in a dashboard's file."""
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def main() -> None:
    """Write all of them."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (directory / board.file).write_text(text(board))
        print(directory / board.file)


if __name__ == "__main__":
    main()
