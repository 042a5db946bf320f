"""What do the threads of this process do right now? Their stacks, Python's functions and native ones together."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..discovery import procfs
from ..errors import OtelGpuError
from ..service import rights
from ..text import escaped
from .capabilities import keep_only
from .durations import duration_of
from .run import pid
from .signals import LastResort

if TYPE_CHECKING:
    from ..service.snapshot import ThreadSnapshot
    from ..signals.profiles import Frame

NAME = "dump"
HELP = "show the stacks of all threads of a process as they are now"

_TIMEOUT_S = 10.0
_ENDS_S = 10.0
"""How much longer than it was given a look may take before the command gives up."""
_MAX_LINE = 400
_MAX_TIDS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("pid", metavar="PID", type=pid, help="the process to look at; it is not stopped")
    parser.add_argument("--json", action="store_true", help="print one object, with an object for each thread")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=duration_of("--timeout"),
        default=_TIMEOUT_S,
        help=f"how long at most what the stacks need is read (default {_TIMEOUT_S:g}); what there is then is shown",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the stacks."""
    process = arguments.pid
    keep_only(rights.of_probes(), arguments, [process])
    from ..service.snapshot import merged, take_snapshot

    with LastResort(arguments.timeout + _ENDS_S) as last_resort:
        # Memory that never answers holds up whoever reads it.
        last_resort.arm()
        threads = take_snapshot(process, arguments.timeout)
    if not threads:
        raise OtelGpuError(f"process {process} has ended before its threads could be looked at")
    if arguments.json:
        print(json.dumps(_document(process, threads), indent=2))
        return 0
    print(escaped(f"process {process}: {_command(process)}", _MAX_LINE))
    for group in merged(threads):
        print()
        for line in _lines(group):
            print(line)
    return 0


def _command(process: int) -> str:
    try:
        words = procfs.read(process, "cmdline", 4096).split(b"\0")
    except (OtelGpuError, OSError):
        return "[gone]"
    return os.fsdecode(b" ".join(words).strip()) or "[no command line]"


def _lines(group: list[ThreadSnapshot]) -> Iterator[str]:
    """Yield what is said of threads that do the same."""
    first = group[0]
    facts = [first.state]
    if first.cuda_call:
        facts.append(f"in {first.cuda_call}")
    if first.gil:
        facts.append(f"{first.gil} the GIL" if first.gil == "holds" else "waits for the GIL")
    tids = ", ".join(str(t.tid) for t in group[:_MAX_TIDS]) + (", …" if len(group) > _MAX_TIDS else "")
    names = ", ".join(dict.fromkeys(f'"{t.name}"' for t in group[:_MAX_TIDS]))
    who = f"Thread {tids}" if len(group) == 1 else f"{len(group)} threads {tids}"
    yield escaped(f"{who} ({', '.join(facts)}): {names}", _MAX_LINE)
    for frame in first.stack:
        yield escaped(f"    {_frame(frame)}", _MAX_LINE)
    if not first.stack:
        yield "    [its stack could not be taken]"


def _frame(frame: Frame) -> str:
    from ..signals.frame_names import label

    if frame.filename:
        line = f":{frame.line}" if frame.line > 0 else ""
        return f"{label(frame)} ({PurePosixPath(frame.filename).name}{line})"
    if frame.function and frame.mapping is not None and frame.mapping.path:
        return f"{label(frame)} ({PurePosixPath(frame.mapping.path).name})"
    return label(frame)


def _document(process: int, threads: list[ThreadSnapshot]) -> dict[str, object]:
    return {
        "pid": process,
        "command": escaped(_command(process), 4096),
        "threads": [
            {
                "tid": thread.tid,
                "name": thread.name,
                "state": thread.state,
                "cuda_call": thread.cuda_call,
                "gil": thread.gil,
                "stack": [_frame_document(frame) for frame in thread.stack],
            }
            for thread in threads
        ],
    }


def _frame_document(frame: Frame) -> dict[str, object]:
    from ..signals.frame_names import clean, label

    file = frame.filename or (frame.mapping.path if frame.mapping is not None else "")
    return {"kind": frame.kind.value, "function": label(frame), "file": clean(file) or None, "line": frame.line or None}
