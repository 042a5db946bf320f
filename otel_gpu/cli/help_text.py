"""How is what `--help` says laid out? Words stay whole, and examples stand as they were written."""

from __future__ import annotations

import argparse
import shutil
import textwrap

_INDENT = 26
_WIDEST = 120
_LONGEST_COMMAND = 14


class HelpFormatter(argparse.HelpFormatter):
    """Breaks lines between words alone: what is broken at a hyphen can be neither read as a name nor copied."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_INDENT, width=min(shutil.get_terminal_size().columns, _WIDEST) - 2)

        # A column for all: the names of commands stand two further in than they are counted.
        self._action_max_length = _LONGEST_COMMAND

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return textwrap.indent(text, indent)
        return textwrap.fill(" ".join(text.split()), width, initial_indent=indent, break_on_hyphens=False)
