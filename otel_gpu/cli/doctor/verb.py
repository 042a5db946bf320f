"""Can this host run the agent, and what is missing, with the fix for each?"""

from __future__ import annotations

import argparse
import dataclasses
import json

from ...bpf.needs import Check
from ...config.model import Config
from ...text import escaped
from ..progress import bar
from .host_checks import check_host

NAME = "doctor"
HELP = "say whether this host can run the agent, and what to mend"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--config", metavar="FILE", help="check this file, and the endpoints that it names")
    parser.add_argument(
        "--output", metavar="WHERE", help="check this place, as `run` takes it, in place of the configured"
    )
    parser.add_argument("--profiles", action="store_true", help="check what `run --profiles` needs, too")
    parser.add_argument("--traces", action="store_true", help="check what `run --traces` needs, too")
    parser.add_argument("--json", action="store_true", help="print a list of {check, ok, required, detail, fix}")


def run(arguments: argparse.Namespace) -> int:
    """Print every check; 1 when a required one fails."""
    config = Config.load(
        arguments.config, output=arguments.output, profiles=arguments.profiles, traces=arguments.traces
    )
    with bar() as shown:
        shown.update("trying what the agent does")
        checks = list(check_host(config))
    if arguments.json:
        print(json.dumps([dataclasses.asdict(c) for c in checks], indent=2))
    else:
        for check in checks:
            print(render(check))
        failed = sum(c.required and not c.ok for c in checks)
        print(f"\n{failed} required {'check fails' if failed == 1 else 'checks fail'}" if failed else "\nready to run")
    return int(any(c.required and not c.ok for c in checks))


def render(check: Check) -> str:
    """Return the lines that say one check."""
    mark = "ok  " if check.ok else "FAIL" if check.required else "--  "
    fix = "" if check.fix is None else f"\n{'':22}-> {escaped(check.fix)}"
    return f"{mark}  {check.check:<16}{escaped(check.detail)}{fix}"
