"""Does each shell complete all that can be said? Real ones, in which somebody presses the tabulator."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from otel_gpu.cli import whole_parser
from otel_gpu.cli.completion import SHELLS
from otel_gpu.exporters.recordings.output import FORMATS
from tests.e2e.terminal import Terminal

_SIZE = (240, 400)
"""Large enough for all answers at once."""


def _verbs() -> dict[str, argparse.ArgumentParser]:
    (below,) = [a for a in whole_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(below.choices)


_VERBS = _verbs()


def _options(verb: str) -> set[str]:
    return {name for action in _VERBS[verb]._actions for name in action.option_strings if name.startswith("--")}


def _shell(name: str) -> str:
    if (found := shutil.which(name)) is None:
        pytest.skip(f"no {name} on PATH: `tests/ground/tools.sh` installs it")
    return found


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the command prints for each shell, and a home without anybody's settings."""
    directory = tmp_path_factory.mktemp("completion")
    for shell, name in SHELLS.items():
        command = [sys.executable, "-m", "otel_gpu", "completion", shell]
        (directory / name).write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    command_file = directory / "bin" / "otel-gpu"
    command_file.parent.mkdir()
    command_file.write_text("#!/bin/sh\n")
    command_file.chmod(0o755)
    return directory


def _ask(terminal: Terminal, typed: str, keys: str, wanted: set[str]) -> set[str]:
    """Press the keys behind some words, wait for what is wanted and return all words that begin a column or a line."""
    before = len(terminal.text)
    terminal.press(typed + keys)
    pattern = re.compile(r"(?:^|\s\s+)(--?[a-z][a-z-]*|[a-z]+)(?=\s|$)", re.MULTILINE)
    found: set[str] = set()

    def is_there(text: str) -> bool:
        # What is offered stands between the line that was typed and the same one anew.
        _, _, shown = text[before:].partition("\n")
        offered, prompt, _ = shown.rpartition("\n% ")
        found.update(pattern.findall(offered))
        return prompt and wanted <= found

    terminal.until(is_there)
    terminal.press("\x15")
    return found


@pytest.fixture(scope="module")
def zsh(scripts: Path) -> Iterator[Terminal]:
    environment = {"HOME": str(scripts), "ZDOTDIR": str(scripts), "PATH": f"{scripts}/bin:/usr/bin:/bin"}
    with Terminal([_shell("zsh"), "-f", "-i"], size=_SIZE, environment=environment) as terminal:
        for line in (
            "PROMPT='%% ' RPROMPT= LISTMAX=100000; setopt NO_ALWAYS_LAST_PROMPT NO_PROMPT_SP",
            f"fpath=({scripts} $fpath); autoload -Uz compinit; compinit -u -D && print re''ady",
        ):
            terminal.press(line + "\n")
        terminal.until(lambda text: re.search(r"^ready", text, re.MULTILINE))
        yield terminal


@pytest.fixture(scope="module")
def bash(scripts: Path) -> Iterator[Terminal]:
    environment = {"HOME": str(scripts), "PATH": f"{scripts}/bin:/usr/bin:/bin"}
    with Terminal([_shell("bash"), "--norc", "--noprofile", "-i"], size=_SIZE, environment=environment) as terminal:
        for line in (
            "PS1='% '; bind 'set completion-query-items 0'; bind 'set page-completions off'",
            "bind 'set enable-bracketed-paste off'",
            f"source {scripts / SHELLS['bash']} && echo re''ady",
        ):
            terminal.press(line + "\n")
        terminal.until(lambda text: re.search(r"^ready", text, re.MULTILINE))
        yield terminal


@pytest.mark.parametrize("verb", _VERBS)
def test_zsh_offers_every_option(zsh: Terminal, verb: str) -> None:
    found = _ask(zsh, f"otel-gpu {verb} --", "\t", _options(verb))

    assert {name for name in found if name.startswith("--")} == _options(verb)


def test_zsh_offers_commands_and_choices(zsh: Terminal) -> None:
    assert _ask(zsh, "otel-gpu ", "\t", set(_VERBS)) >= set(_VERBS)
    assert _ask(zsh, "otel-gpu record --format ", "\t", set(FORMATS)) >= set(FORMATS)


@pytest.mark.parametrize("verb", _VERBS)
def test_bash_offers_every_option(bash: Terminal, verb: str) -> None:
    found = _ask(bash, f"otel-gpu {verb} --", "\t\t", _options(verb))

    assert {name for name in found if name.startswith("--")} == _options(verb)


def test_bash_offers_commands_and_choices(bash: Terminal) -> None:
    assert _ask(bash, "otel-gpu ", "\t\t", set(_VERBS)) >= set(_VERBS)
    assert _ask(bash, "otel-gpu record --format ", "\t\t", set(FORMATS)) >= set(FORMATS)


def _fish(scripts: Path, typed: str) -> set[str]:
    command = [_shell("fish"), "--no-config", "-c", f"source {scripts / SHELLS['fish']}; complete -C {typed!r}"]
    environment = {"HOME": str(scripts), "PATH": f"{scripts}/bin:/usr/bin:/bin", "TERM": "xterm"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("verb", _VERBS)
def test_fish_offers_every_option(scripts: Path, verb: str) -> None:
    assert _fish(scripts, f"otel-gpu {verb} --") == _options(verb)


def test_fish_offers_commands_and_choices(scripts: Path) -> None:
    ask = partial(_fish, scripts)

    assert ask("otel-gpu ") == set(_VERBS)
    assert ask("otel-gpu record --format ") == set(FORMATS)
