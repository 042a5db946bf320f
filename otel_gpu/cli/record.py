"""Which code of this process launches, waits, copies, holds GPU memory, or runs on the CPU?"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import privileges, rights
from ..config.model import Config
from ..discovery.procfs import is_alive
from ..errors import ConfigError, OtelGpuError
from ..printable import escaped
from ..process.parsers import Parsers
from ..receivers.cuda.settings import CudaSettings
from ..reporters.call_sites import top_call_sites
from ..reporters.output import FORMATS, Output, in_order
from ..signals.profiles import CHOICES, chosen_types
from .capabilities import keep_only
from .progress import Bar, bar
from .run import pid
from .signals import LastResort, stop_signals
from .started_command import StartedCommand
from .times import duration

if TYPE_CHECKING:
    from ..receivers.profiles.receiver import Progress
    from ..service.recording import Recording
    from ..signals.profiles import Profile, ProfileType

_DURATION_S = 10.0
_TOLD_NAMES_S = 3.0
"""How long names are waited for by a recording that is told to stop."""
NAME = "record"
HELP = "take one profile of a live process, or draw the difference of two"

_MAX_LINE = 2_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "target",
        metavar="PID | -- COMMAND",
        nargs="*",
        default=[],
        help="the process to record, or several; or a command to start and to record until it ends",
    )
    parser.add_argument(
        "--pid",
        "-p",
        metavar="PID",
        type=pid,
        nargs="+",
        action="extend",
        default=[],
        help="the process to record, or several",
    )
    parser.add_argument(
        "--duration", metavar="SECONDS", type=duration, help="how long (default 10, or until the command ends)"
    )
    parser.add_argument(
        "--type",
        metavar="TYPE[,TYPE]",
        type=_types,
        action="extend",
        default=[],
        help=f"what to record, of {', '.join(CHOICES)} (default launch)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        required=True,
        help="the file, or - for the standard output; a suffix chooses the format: .html, .pb.gz (pprof), .folded, "
        ".json (speedscope), .otlp.json",
    )
    parser.add_argument("--format", choices=FORMATS, help="the format, where OUT does not say it")
    parser.add_argument(
        "--diff",
        nargs=2,
        metavar=("BEFORE", "AFTER"),
        help="record nothing: write the difference of two recordings, in any formats; folded stacks are taken for the --type",
    )
    parser.add_argument("--config", metavar="FILE", help="the agent's file, for how it chooses sites")


def run(arguments: argparse.Namespace) -> int:
    """Record, or compare, and write the file."""
    names = list(dict.fromkeys(arguments.type)) or ["launch"]
    types = chosen_types(names)
    if arguments.diff:
        return _difference(arguments.diff, types[0], Path(arguments.output))
    output = Output.asked(arguments.output, arguments.format)
    output.check(types)
    pids, command = _targets(arguments)
    receivers = Config.load(arguments.config).receivers.values()
    cuda = next((s for s in receivers if isinstance(s, CudaSettings)), None)
    if not command:
        _take(arguments, names, pids, cuda, output, None)
        return 0
    with StartedCommand(command, arguments.descriptors) as started:
        _take(arguments, names, [started.pid], cuda, output, started)
        return started.wait()


def _types(text: str) -> list[str]:
    """Return the types that an option says."""
    names = text.split(",")
    for name in names:
        if name not in CHOICES:
            raise ConfigError(f"--type {text}: there is no type {name!r}; choose of {', '.join(CHOICES)}")
    return names


def _targets(arguments: argparse.Namespace) -> tuple[list[int], list[str]]:
    """Return which processes, or which command."""
    words = arguments.target
    if words and not words[0].isdigit():
        if arguments.pid:
            raise ConfigError("record processes or a command, not both: leave --pid out, or the command")
        return [], words
    pids = list(dict.fromkeys([*arguments.pid, *map(pid, words)]))
    if not pids:
        raise ConfigError(
            "say what to record: a pid, such as 4711, or -- and a command to start; or --diff which recordings to compare"
        )
    return pids, []


def _take(
    arguments: argparse.Namespace,
    names: Sequence[str],
    pids: list[int],
    cuda: CudaSettings | None,
    output: Output,
    started: StartedCommand | None,
) -> None:
    """Take one recording, and write it."""
    who = f"process {pids[0]}" if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
    link = (cuda or CudaSettings()).link
    needed = keep_only(rights.of_probes(link, map(Path, output.places)), arguments, pids)
    # A child gets ready while everything else is imported.
    parsers = Parsers()
    parsers.start()
    from ..service.recording import Recording

    kinds = chosen_types(names)
    with (
        LastResort() as last_resort,
        parsers,
        Recording(pids, kinds, cuda, parsers=parsers) as recorder,
        stop_signals(last_resort.arm) as told_to_stop,
    ):
        privileges.settle(needed.placing)
        with bar() as shown:
            _record(recorder, f"{', '.join(names)} of {who}", arguments.duration, told_to_stop, shown, started)
            shown.update("looking up names")
            profiles = recorder.finish(_TOLD_NAMES_S) if told_to_stop.is_set() else recorder.finish()
        if not profiles:
            raise OtelGpuError(_nothing(names, pids, who, is_command=started is not None))
        # While the probes are still in place: who waits for the file does not wait for them to be taken away.
        written = output.write(profiles, kinds)
        _report(written, sorted(profiles, key=in_order(kinds)), _stacks(recorder))


def _report(written: Sequence[tuple[str, tuple[ProfileType, ...]]], profiles: Sequence[Profile], stacks: str) -> None:
    """Say what was written, and which code did the most."""
    if len(written) == 1:
        print(f"wrote {escaped(written[0][0])}: {stacks}", file=sys.stderr)
    else:
        for name, types in written:
            print(f"wrote {escaped(name)}: {', '.join(t.title.lower() for t in types)}", file=sys.stderr)
        print(stacks, file=sys.stderr)
    for kind in dict.fromkeys(p.type for p in profiles):
        total, sites = top_call_sites(p for p in profiles if p.type == kind)
        print(f"{kind.title.lower()}, {total:,} {kind.unit}:", file=sys.stderr)
        for site in sites:
            print(f"  {site.share:6.1%}  {escaped(site.name)}", file=sys.stderr)


def _record(
    recorder: Recording,
    what: str,
    duration_s: float | None,
    told_to_stop: threading.Event,
    shown: Bar,
    started: StartedCommand | None,
) -> None:
    """Record for so long from when the first stack can be taken; a command runs from then on."""
    recorder.prepare(told_to_stop, lambda progress: shown.update(f"preparing: {_reading(progress)}"))
    recorder.start()
    if duration_s is None:
        duration_s = math.inf if started else _DURATION_S
    how_long = "until it ends" if math.isinf(duration_s) else f"for {duration_s:g} s"
    # Said once it is true: whoever waits for it may begin.
    print(f"recording {what} {how_long}", file=sys.stderr, flush=True)
    if started:
        started.go()
    began = time.monotonic()

    def show(progress: Progress) -> None:
        text = f"recording, and {_reading(progress)}" if progress.files else "recording"
        shown.update(text, time.monotonic() - began, None if math.isinf(duration_s) else duration_s)

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


def _nothing(names: Sequence[str], pids: list[int], who: str, *, is_command: bool) -> str:
    """Say why there is no profile, and what to do."""
    kinds = f"type {names[0]}" if len(names) == 1 else f"types {', '.join(names)}"
    did = f"nothing that a profile of the {kinds} shows happened in {who}"
    if set(names) <= {"inuse", "tensor"}:
        did = f"{who} holds no memory that was allocated while recording"
    if not any(map(is_alive, pids)):
        return f"{did}, and it has ended; {'see that it uses a GPU' if is_command else 'record earlier'}"
    return f"{did}; record longer, or see what is attached with `otel-gpu inspect {pids[0]}`"


def _difference(paths: list[str], type_of_folded: ProfileType, output: Path) -> int:
    from ..reporters.files import check_output, write_difference
    from ..reporters.reading import read_profiles

    check_output(output)
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
