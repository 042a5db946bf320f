"""Which code of this process launches, waits, copies, holds GPU memory, or runs on the CPU?"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.model import Config
from ..discovery.descendants import descendants
from ..discovery.procfs import is_alive
from ..errors import ConfigError, OtelGpuError
from ..exporters.recordings.call_sites import top_call_sites
from ..exporters.recordings.output import FORMATS, Output, in_order
from ..receivers.cuda.settings import CudaSettings
from ..runtime import privileges
from ..sandbox.parsers import Parsers
from ..service import rights
from ..signals.profiles import CHOICES, chosen_types
from ..text import escaped
from .caller import Caller, find_caller
from .capabilities import keep_only
from .difference import Comparison
from .durations import duration
from .progress import Bar, bar
from .run import add_processes, pid
from .signals import LastResort, stop_signals
from .started_command import StartedCommand

if TYPE_CHECKING:
    from ..receivers.profiles.receiver import Progress
    from ..service.recording import Recording
    from ..signals.profiles import Profile, ProfileType

_DURATION_S = 10.0
_TOLD_NAMES_S = 3.0
"""How long names are waited for by a recording that is told to stop."""
_MAX_PIDS = 8
_HOLDS = {"inuse": "holds", "tensor": "holds", "peak": "has held", "leak": "has left"}
NAME = "record"
HELP = "take one profile of a live process, or draw the difference of two"
EXAMPLES = """examples:
  otel-gpu record 4711 -o launches.html                  which code launches kernels, for 10 s
  otel-gpu record --type alloc,wait -o a.html -- python train.py
  otel-gpu record --no-children 4711 --type cpu -o cpu.pb.gz
  otel-gpu record --diff before.html after.html -o difference.html"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "target",
        metavar="PID | -- COMMAND",
        nargs="*",
        default=[],
        help="the process to record, or several, with their descendants; or a command to start and to record until it ends",
    )
    add_processes(parser, "the process to record, or several, with their descendants", "-p")
    parser.add_argument(
        "--subprocesses",
        "-s",
        dest="children",
        action="store_true",
        help="record what they start too; the default, and accepted as earlier versions had it",
    )
    parser.set_defaults(children=True)
    parser.add_argument(
        "-d", "--duration", metavar="SECONDS", type=duration, help="how long (default 10, or until the command ends)"
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
        help="the file, or - for the standard output (what a command says goes to standard error then); a suffix chooses "
        "the format: .html, .svg, .pb.gz (pprof), .folded, .json (speedscope), .otlp.json",
    )
    parser.add_argument("--format", choices=FORMATS, help="the format, where OUT does not say it")
    parser.add_argument("--lines", action="store_true", help="folded stacks with file and line: function (file:line)")
    parser.add_argument(
        "--diff",
        nargs="+",
        metavar=("BEFORE", "AFTER"),
        help="write the difference of two recordings, in any formats, and record nothing; or of BEFORE alone and what is "
        "recorded now. By rate where one took longer; folded stacks are taken for the --type",
    )
    parser.add_argument(
        "--as-root",
        action="store_true",
        help="run the command as root; otherwise it runs as the user who called sudo, doas or pkexec",
    )
    parser.add_argument("--config", metavar="FILE", help="the agent's file, for how it chooses sites")


def run(arguments: argparse.Namespace) -> int:
    """Record, or compare, and write the file."""
    names = list(dict.fromkeys(arguments.type)) or ["launch"]
    types = chosen_types(names)
    output = Output.asked(arguments.output, arguments.format, lines=arguments.lines, owner=_owner())
    compared = Comparison.asked(arguments.diff, types[0], output) if arguments.diff else None
    if compared is not None and compared.after is not None:
        compared.write(compared.after)
        return 0
    if compared is None:
        output.check(types)
    pids, command = _targets(arguments)
    caller = find_caller() if command and not arguments.as_root else None
    receivers = Config.load(arguments.config).receivers.values()
    cuda = next((s for s in receivers if isinstance(s, CudaSettings)), None)
    if not command:
        _take(arguments, names, pids, cuda, compared or output, None)
        return 0
    with StartedCommand(
        command, arguments.descriptors, caller=caller, says_to_stderr=arguments.output == "-"
    ) as started:
        _take(arguments, names, [started.pid], cuda, compared or output, started)
        if not started.has_ended():
            print(f"the command goes on (process {started.pid}); its end is waited for", file=sys.stderr, flush=True)
        return started.wait()


def _owner() -> Caller | None:
    """Return the user who gets what is written."""
    try:
        return find_caller()
    except ConfigError:
        return None


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
    output: Output | Comparison,
    started: StartedCommand | None,
) -> None:
    """Take one recording, and write it."""
    who = f"process {pids[0]}" if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
    link = (cuda or CudaSettings()).link
    needed = rights.of_probes(link, map(Path, output.places))
    if output.owner is not None and output.places:
        needed = replace(needed, kept=needed.kept | rights.GIVE)
    needed = keep_only(needed, arguments, pids)
    # A child gets ready while everything else is imported.
    parsers = Parsers()
    parsers.start()
    from ..service.recording import Recording

    kinds = chosen_types(names)
    with (
        LastResort() as last_resort,
        parsers,
        Recording(pids, kinds, cuda, parsers=parsers, follows_children=arguments.children) as recorder,
        stop_signals(last_resort.arm) as told_to_stop,
    ):
        privileges.settle(needed.placing)
        with bar() as shown:
            what = f"{', '.join(names)} of {who}"
            _record(recorder, what, arguments.duration, told_to_stop, shown, started)
            shown.update("looking up names")
            profiles = recorder.finish(_TOLD_NAMES_S) if told_to_stop.is_set() else recorder.finish()
        if started and told_to_stop.is_set():
            started.pass_on(told_to_stop.number)
        if not profiles:
            raise OtelGpuError(
                _nothing(
                    names,
                    pids,
                    who,
                    is_command=started is not None,
                    is_alone=not arguments.children,
                    uses_gpu=recorder.uses_gpu,
                )
            )
        # While the probes are still in place: who waits for the file does not wait for them to be taken away.
        if isinstance(output, Comparison):
            output.write(profiles)
            print(_stacks(recorder), file=sys.stderr)
            return
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

    told_of: set[int] = set()

    def show(progress: Progress) -> None:
        if started and not told_of and not is_alive(started.pid):
            told_of.update(recorder.awaited())
            _tell_of_others(sorted(told_of))
        text = f"recording, and {_reading(progress)}" if progress.files else "recording"
        shown.update(text, time.monotonic() - began, None if math.isinf(duration_s) else duration_s)

    recorder.wait(duration_s, told_to_stop, show)


def _tell_of_others(pids: Sequence[int]) -> None:
    """Say for whom a recording waits whose command has ended."""
    if pids:
        shown = ", ".join(map(str, pids[:_MAX_PIDS])) + (", …" if len(pids) > _MAX_PIDS else "")
        print(
            f"the command has ended; recording goes on until what it has started ends as well (process {shown}); "
            "Ctrl-C stops it",
            file=sys.stderr,
        )


def _stacks(recorder: Recording) -> str:
    """Say what became of the stacks."""
    complete, truncated = recorder.truncated
    taken = complete + truncated
    said = f"{taken} stacks"
    if taken:
        said += f", {truncated} of them cut short" if truncated else ", all complete"
    if taken and (unread := recorder.cut_for_tables):
        said += f" ({unread} while unwinding tables were read)"
        if 2 * unread > taken:
            said += "; what is recorded was over before it could be walked: its totals are whole, a longer run shows its stacks"
    if dropped := recorder.dropped:
        said += f"; {dropped} more came faster than they could be read, and are in the totals only"
    return said


def _reading(progress: Progress) -> str:
    """Say what is being read."""
    file = f", now {progress.reading}" if progress.reading else ""
    return f"reading unwinding tables of {progress.files} files{file}"


def _nothing(
    names: Sequence[str], pids: list[int], who: str, *, is_command: bool, is_alone: bool, uses_gpu: bool
) -> str:
    """Say why there is no profile, and what to do."""
    kinds = f"type {names[0]}" if len(names) == 1 else f"types {', '.join(names)}"
    who = who if is_alone else f"{who} and what it started" if len(pids) == 1 else f"{who} and what they started"
    did = f"nothing that a profile of the {kinds} shows happened in {who}"
    if set(names) <= {"inuse", "tensor", "peak", "leak"}:
        did = f"{who} {_HOLDS[names[0]]} no memory that was allocated while recording"
    if not any(map(is_alive, pids)):
        advice = "record earlier"
        if is_alone:
            advice = "leave --no-children out to record what it starts as well"
        elif is_command:
            advice = "choose another --type" if uses_gpu else "see that it uses a GPU"
        return f"{did}, and it has ended; {advice}"
    if is_alone and (below := descendants(pids)):
        return f"{did}; it has started others ({len(below)}): leave --no-children out to record them as well, or record longer"
    return f"{did}; record longer, or see what is attached with `otel-gpu inspect {pids[0]}`"
