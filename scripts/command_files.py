"""What do shells and `man` know of the command? Writes otel_gpu/cli/completions/ from its parser; `make docs` runs it."""

from __future__ import annotations

import argparse
import re

import shtab
from argparse_manpage.manpage import Manpage

from otel_gpu.cli import whole_parser
from otel_gpu.cli.completion import FILES, SHELLS

_FILES_OF = {"--config", "--output", "-o", "--diff", "PATH", "FILE"}


def _parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return [parser, *(p for action in below for p in action.choices.values())]


def main() -> None:
    parser = whole_parser()
    for one in _parsers(parser):
        for action in one._actions:
            if isinstance(action.choices, dict) and not isinstance(action, argparse._SubParsersAction):
                action.choices = list(action.choices)
            if _FILES_OF & {*action.option_strings, str(action.metavar)}:
                action.complete = shtab.FILE
    FILES.mkdir(exist_ok=True)
    for shell, name in SHELLS.items():
        (FILES / name).write_text(shtab.complete(parser, shell=shell) + "\n")
    page = str(
        Manpage(
            parser,
            format="single-commands-section",
            _data={"project_name": "otel-gpu", "manual_title": "otel-gpu", "manual_section": "1"},
        )
    )
    # No date: what is the same is written the same.
    page = re.sub(r"^\.TH .*$", '.TH OTEL\\-GPU "1" "" "otel\\-gpu" "otel\\-gpu"', page, count=1, flags=re.MULTILINE)
    page = page.replace(".SH NAME\notel\\-gpu", ".SH NAME\notel\\-gpu \\- see what programs ask of the GPU, by eBPF", 1)
    page = page.replace("POSITIONAL ARGUMENTS", "COMMANDS", 1)
    (FILES / "otel-gpu.1").write_text(page.rstrip() + "\n")


if __name__ == "__main__":
    main()
