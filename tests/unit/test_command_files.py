"""Do shells and `man` know every verb and every option?"""

from __future__ import annotations

import argparse
import subprocess

import pytest

from otel_gpu.cli import main, whole_parser
from otel_gpu.cli.completion import FILES, SHELLS

FILE_OF = {**SHELLS, "man": "otel-gpu.1"}


def options_by_verb() -> dict[str, list[str]]:
    parser = whole_parser()
    [verbs] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return {
        verb: [o for a in one._actions for o in a.option_strings if o.startswith("--") and o != "--help"]
        for verb, one in verbs.choices.items()
    }


@pytest.mark.parametrize("kind", FILE_OF)
def test_every_verb_and_option_stands_there(kind: str) -> None:
    text = (FILES / FILE_OF[kind]).read_text().replace("\\-", "-")

    # fish leaves the dashes out.
    known = {verb: [o[2:] if kind == "fish" else o for o in options] for verb, options in options_by_verb().items()}
    missing = [word for verb, options in known.items() for word in (verb, *options) if word not in text]
    assert missing == [], "run `make docs`"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == (FILES / SHELLS[shell]).read_text()


def test_bash_completes_options() -> None:
    script = (
        f"source {FILES / SHELLS['bash']}; COMP_WORDS=(otel-gpu top --inter); COMP_CWORD=2; "
        'f=$(complete -p otel-gpu | sed "s/.*-F \\([^ ]*\\).*/\\1/"); $f otel-gpu --inter top; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "--interval\n"
