"""What can a person ask? One verb per module, imported when it is asked for.

A verb has NAME, HELP, add_arguments(parser) and run(arguments), which returns the exit code: 0 done,
1 failed, 2 bad usage or configuration. A failure is one line on stderr: what, why, what to do.
A command keeps the rights that it needs; a program that calls `main` with arguments of its own keeps them all.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn, Protocol, cast

from ..errors import ConfigError, LoadError, OtelGpuError
from ..runtime.privileges import take_up
from ..runtime.shortage import is_memory_shortage, memory_advice, raise_descriptor_limit, require_address_space
from ..text import one_line, without_credentials
from . import logs, terminals
from .help_text import HelpFormatter

VERBS = ("run", "record", "dump", "top", "view", "demo", "doctor", "inspect", "stragglers", "completion")
_WITH_PARTS = ("top", "demo", "doctor", "stragglers")
"""Verbs that are folders: the verb is what its `verb` says, and the rest are its parts."""
_MAX_COMPLAINT = 2_000


class Verb(Protocol):
    """What a module of this package offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


class _Parser(argparse.ArgumentParser):
    """Complains in one line, like everything else here."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Without `argv` this process is the command and nothing else."""
    is_command = argv is None
    argv = sys.argv[1:] if argv is None else list(argv)
    # Also when the options themselves cannot be understood.
    debug = "--debug" in argv
    if is_command:
        terminals.encode_for_terminal()
    try:
        require_address_space()
        verb, arguments = _parse(argv, argparse.Namespace(debug=False, is_command=is_command))
        logs.configure(logging.DEBUG if debug else logging.WARNING)
        if is_command:
            take_up()
        arguments.descriptors = raise_descriptor_limit()
        return verb.run(arguments)
    except OtelGpuError as e:
        _complain(str(e), debug)
        if debug and isinstance(e, LoadError) and e.verifier_log:
            print(logs.indented(e.verifier_log), file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe has left; nothing more is to be said there, not even by Python's exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as e:
        _complain(
            f"the Python package {e.name} is missing; install it where otel-gpu is: PYTHONPATH is not followed", debug
        )
        return 1
    except Exception as e:  # noqa: BLE001 - the last resort: still one line
        _complain(_unforeseen(e), debug)
        return 1


def _unforeseen(error: Exception) -> str:
    """Return what failed that nothing else explains, and what to do."""
    if is_memory_shortage(error):
        return (
            f"there is not enough memory ({type(error).__name__}: {str(error) or 'no reason given'}); {memory_advice()}"
        )
    if isinstance(error, OSError):
        return f"{error.filename or 'the system'}: {error.strerror or error}; run again with --debug to see where"
    return f"internal error: {type(error).__name__}: {error}; run again with --debug and report it"


def _complain(message: str, debug: bool) -> None:
    if debug:
        print(logs.indented(traceback.format_exc()), file=sys.stderr)
    print(f"otel-gpu: {one_line(without_credentials(message), _MAX_COMPLAINT)}", file=sys.stderr)


def _parse(argv: Sequence[str], known: argparse.Namespace) -> tuple[Verb, argparse.Namespace]:
    parser, modules = _parser(argv)
    arguments, left = parser.parse_known_args(argv, known)
    if left:
        # What is left over is said by the parser of all; it is the command's own help that shows what there is.
        raise ConfigError(f"unrecognized arguments: {' '.join(left)}; see otel-gpu {arguments.verb} --help")
    return modules[arguments.verb], arguments


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser of every verb, for whoever writes of them."""
    return _parser(())[0]


def _parser(argv: Sequence[str]) -> tuple[argparse.ArgumentParser, dict[str, Verb]]:
    """Return the parser, and the verbs that it knows: the one that is asked for, or all."""
    common = _Parser(add_help=False)
    common.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="log more, and show a traceback on failure"
    )
    parser = _Parser(
        prog="otel-gpu",
        description="Sees what programs ask of the GPU, from outside and while they run, by eBPF; speaks OpenTelemetry.",
        epilog="otel-gpu COMMAND --help says what each takes; begin with otel-gpu doctor. Durations are seconds, or 5s, 500ms, 2m.",
        parents=[common],
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version and exit")
    verbs = parser.add_subparsers(metavar="COMMAND", dest="verb", required=True, parser_class=_Parser)
    asked = next((a for a in argv if not a.startswith("-")), None)
    modules = {name: _load(name) for name in VERBS if asked not in VERBS or asked == name}
    for module in modules.values():
        module.add_arguments(
            verbs.add_parser(
                module.NAME,
                help=module.HELP,
                description=_sentence(module.HELP),
                epilog=getattr(module, "EXAMPLES", None),
                parents=[common],
                formatter_class=HelpFormatter,
            )
        )
    return parser, modules


def _load(name: str) -> Verb:
    return cast("Verb", import_module(f".{name}.verb" if name in _WITH_PARTS else f".{name}", __name__))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


class _PrintVersion(argparse.Action):
    """Prints the version, which is looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from .. import __version__

        print(f"otel-gpu {__version__}")
        parser.exit()
