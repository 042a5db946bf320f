"""What is attached in this process: library, symbol, instruction, cost, or why not?"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..config.model import Config
from ..receivers.cuda.settings import CudaSettings
from ..service import rights
from ..text import escaped
from .capabilities import keep_only
from .run import pid

if TYPE_CHECKING:
    from .inspection import InspectedProbe

NAME = "inspect"
HELP = "show what is probed in a process, where, and why not"

_UNTOLD = "the kernel does not tell what is attached, which takes CAP_SYS_ADMIN, and Linux 6.8"
_MAX_REASONS = 5
_HEAD = ("symbol", "at", "offset", "instruction", "cost", "state")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("pid", metavar="PID", type=pid, help="the process to look at")
    parser.add_argument("--config", metavar="FILE", help="the agent's file, for how it chooses sites")
    parser.add_argument("--json", action="store_true", help="print a list with an object for each function")


def run(arguments: argparse.Namespace) -> int:
    """Print what is probed."""
    receivers = Config.load(arguments.config).receivers.values()
    keep_only(rights.of_inspection(), arguments, [arguments.pid])
    from .inspection import inspect

    probes = inspect(arguments.pid, next((s for s in receivers if isinstance(s, CudaSettings)), None))
    if arguments.json:
        print(json.dumps([dataclasses.asdict(p) for p in probes], indent=2))
        return 0
    if not probes:
        print(f"process {arguments.pid} maps no CUDA library; one that it loads later is attached to then")
    for line in summary(arguments.pid, probes):
        print(line)
    for (library, kind), group in itertools.groupby(probes, lambda p: (p.library, p.kind)):
        for line in render(library, kind, list(group)):
            print(line)
    return 0


def summary(pid: int, probes: list[InspectedProbe]) -> Iterator[str]:
    """Yield what it all comes to, before every function is listed."""
    functions = [p for p in probes if p.symbol is not None]
    if not functions:
        return
    libraries = len({p.library for p in functions})
    placed = [p for p in functions if p.offset is not None]
    costs = Counter((p.cost or "unknown").replace("_", "-") for p in placed)
    said = ", ".join(f"{count} {cost}" for cost, count in costs.most_common())
    yield (
        f"process {pid}: {len(placed)} of {len(functions)} functions of {_counted(libraries, 'library', 'libraries')} can be "
        f"probed{f' ({said})' if said else ''}"
    )
    if any(p.attached is not None for p in placed):
        attached = sum(bool(p.attached) for p in placed)
        if attached == len(placed):
            yield "observed now: every one of them is attached"
        elif attached:
            yield f"observed now in part: {attached} of them are attached"
        else:
            yield f"not observed now: run `otel-gpu run --pid {pid}`"
    else:
        yield f"whether it is observed now, {_UNTOLD}"
    reasons = Counter(p.why or "unknown" for p in functions if p.offset is None)
    for why, count in reasons.most_common(_MAX_REASONS):
        yield f"not probed: {_counted(count, 'function', 'functions')}: {escaped(why)}"
    yield ""


def _counted(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def render(library: str, kind: str, probes: list[InspectedProbe]) -> Iterator[str]:
    """Yield the lines that say one library."""
    library = escaped(library)
    functions = [p for p in probes if p.symbol is not None]
    if not functions:
        yield from (f"{library} ({kind}): not probed: {p.why}" for p in probes)
        return
    attached = sum(bool(p.attached) for p in functions)
    told = any(p.attached is not None for p in functions if p.offset is not None)
    state = f"{attached} attached" if told else _UNTOLD
    possible = sum(p.offset is not None for p in functions)
    yield f"{library} ({kind}): {len(functions)} functions, {possible} can be probed, {state}"
    rows = [_HEAD, *(_columns(p) for p in functions)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    for row in rows:
        yield "  " + _padded(row, widths).rstrip()


def _columns(probe: InspectedProbe) -> tuple[str, ...]:
    return (
        str(probe.symbol),
        "" if probe.site is None else f"+{probe.site}",
        "" if probe.offset is None else f"{probe.offset:#x}",
        probe.instruction or "",
        (probe.cost or "").replace("_", "-"),
        ": ".join(filter(None, ({True: "attached", False: "not attached", None: ""}[probe.attached], probe.why))),
    )


def _padded(row: Iterable[str], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
