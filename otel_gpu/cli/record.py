"""Which code of this process launches, waits, copies, holds GPU memory, or runs on the CPU?"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .. import privileges, rights
from ..config.model import Config
from ..discovery.procfs import is_alive
from ..errors import ConfigError, OtelGpuError
from ..printable import escaped
from ..process.parsers import Parsers
from ..receivers.cuda.settings import CudaSettings
from ..signals.profiles import CHOICES
from .capabilities import keep_only
from .progress import Bar, bar
from .run import pid, seconds
from .signals import LastResort, stop_signals

if TYPE_CHECKING:
    from ..receivers.profiles.receiver import Progress
    from ..service.recording import Recording
    from ..signals.profiles import ProfileType

_TOLD_NAMES_S = 3.0
"""How long names are waited for by a recording that is told to stop."""
NAME = "record"
HELP = "take one profile of a live process, or draw the difference of two"

_MAX_LINE = 2_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "--pid",
        metavar="PID",
        type=pid,
        nargs="+",
        action="extend",
        default=[],
        help="the process to record, or several",
    )
    parser.add_argument("--duration", metavar="SECONDS", type=seconds, default=10.0, help="how long (default 10)")
    parser.add_argument("--type", choices=CHOICES, default="launch", help="what to record (default launch)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        help="the file; its suffix chooses the format: .html, .pb.gz (pprof), .folded, .json (speedscope), .otlp.json",
    )
    parser.add_argument(
        "--diff",
        nargs=2,
        metavar=("BEFORE", "AFTER"),
        help="record nothing: write the difference of two recordings, in any formats; folded stacks are taken for the --type",
    )
    parser.add_argument("--config", metavar="FILE", help="the agent's file, for how it chooses sites")


def run(arguments: argparse.Namespace) -> int:
    """Record, or compare, and write the file."""
    from ..reporters.files import check_output, write_profile

    output = Path(arguments.output)
    check_output(output)
    if arguments.diff:
        return _difference(arguments.diff, CHOICES[arguments.type][0], output)
    if not arguments.pid:
        raise ConfigError("--pid is missing: say which process to record, or --diff which recordings to compare")
    receivers = Config.load(arguments.config).receivers.values()
    cuda = next((s for s in receivers if isinstance(s, CudaSettings)), None)
    pids = list(dict.fromkeys(arguments.pid))
    who = f"process {pids[0]}" if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
    link = (cuda or CudaSettings()).link
    needed = keep_only(rights.of_probes(link, [output, output.parent]), arguments, pids)
    # A child gets ready while everything else is imported.
    parsers = Parsers()
    parsers.start()
    from ..service.recording import Recording

    with (
        LastResort() as last_resort,
        parsers,
        Recording(pids, CHOICES[arguments.type], cuda, parsers=parsers) as recorder,
        stop_signals(last_resort.arm) as told_to_stop,
    ):
        privileges.settle(needed.placing)
        with bar() as shown:
            _record(recorder, f"{arguments.type} of {who}", arguments.duration, told_to_stop, shown)
            shown.update("looking up names")
            profiles = recorder.finish(_TOLD_NAMES_S) if told_to_stop.is_set() else recorder.finish()
        if not profiles:
            raise OtelGpuError(_nothing(arguments.type, pids, who))
        # While the probes are still in place: who waits for the file does not wait for them to be taken away.
        write_profile(profiles, output)
        print(f"wrote {escaped(arguments.output)}: {_stacks(recorder)}", file=sys.stderr)
    return 0


def _record(recorder: Recording, what: str, duration_s: float, told_to_stop: threading.Event, shown: Bar) -> None:
    """Record for so long from when the first stack can be taken."""
    recorder.prepare(told_to_stop, lambda progress: shown.update(f"preparing: {_reading(progress)}"))
    recorder.start()
    # Said once it is true: whoever waits for it may begin.
    print(f"recording {what} for {duration_s:g} s", file=sys.stderr, flush=True)
    began = time.monotonic()

    def show(progress: Progress) -> None:
        text = f"recording, and {_reading(progress)}" if progress.files else "recording"
        shown.update(text, time.monotonic() - began, duration_s)

    recorder.wait(duration_s, told_to_stop, show)


def _stacks(recorder: Recording) -> str:
    """Say what became of the stacks."""
    complete, truncated = recorder.truncated
    taken = complete + truncated
    said = f"{taken} stacks"
    if taken:
        said += f", {truncated} of them cut short" if truncated else ", all complete"
    if taken and (unread := recorder.cut_for_tables):
        said += f" ({unread} while unwinding tables were read)"
    if dropped := recorder.dropped:
        said += f"; {dropped} more came faster than they could be read, and are in the totals only"
    return said


def _reading(progress: Progress) -> str:
    """Say what is being read."""
    file = f", now {progress.reading}" if progress.reading else ""
    return f"reading unwinding tables of {progress.files} files{file}"


def _nothing(kind: str, pids: list[int], who: str) -> str:
    """Say why there is no profile, and what to do."""
    did = f"nothing that a profile of the type {kind} shows happened in {who}"
    if kind in {"inuse", "tensor"}:
        did = f"{who} holds no memory that was allocated while recording"
    if not any(map(is_alive, pids)):
        return f"{did}, and it has ended; record earlier"
    return f"{did}; record longer, or see what is attached with `otel-gpu inspect {pids[0]}`"


def _difference(paths: list[str], type_of_folded: ProfileType, output: Path) -> int:
    from ..reporters.files import write_difference
    from ..reporters.reading import read_profiles

    before, after = (read_profiles(Path(p), type_of_folded) for p in paths)
    for path, profiles in zip(paths, (before, after)):
        if not profiles:
            raise ConfigError(f"{path} holds no profile; give a file that otel-gpu record wrote")
    if not {p.type.name for p in before} & {p.type.name for p in after}:
        types = (", ".join(dict.fromkeys(p.type.title for p in profiles)) for profiles in (before, after))
        raise ConfigError(
            "{0} ({2}) and {1} ({3}) have no type in common".format(*paths, *types) + "; record both alike"
        )
    write_difference(before, after, output)
    print(escaped(f"wrote {output}: what changed from {paths[0]} to {paths[1]}", _MAX_LINE), file=sys.stderr)
    return 0
