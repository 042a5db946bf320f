"""Which rank keeps the others waiting, and which collective hangs? From what agents have exported."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

from ...text import escaped
from ..durations import seconds_of
from . import Communicator, HangKind, Member, Rules, find, read

NAME = "stragglers"
HELP = "say which ranks of NCCL jobs keep the others waiting, and where they hang"
_NOTHING = (
    "no arrivals of ranks in there: run the agent with the receiver `nccl` in a pipeline of metrics and one of traces"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    rules = Rules()
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="files of OTLP/JSON, or directories of them, of one host or several",
    )
    parser.add_argument(
        "--min-lateness",
        metavar="SECONDS",
        type=seconds_of("--min-lateness"),
        default=rules.min_lateness_s,
        help=f"how late a straggler is at least (default {rules.min_lateness_s})",
    )
    parser.add_argument(
        "--clock-error",
        metavar="SECONDS",
        type=seconds_of("--clock-error"),
        default=rules.clock_error_s,
        help="by how much clocks of hosts may differ: so much later a straggler has to be where a job has several "
        f"(default {rules.clock_error_s})",
    )
    parser.add_argument(
        "--hang",
        metavar="SECONDS",
        type=seconds_of("--hang"),
        default=rules.hang_s,
        help=f"how long a rank is waited for before it is missing (default {rules.hang_s:g})",
    )
    parser.add_argument("--json", action="store_true", help="print a list with an object for each communicator")


def run(arguments: argparse.Namespace) -> int:
    """Print what was found."""
    data = read(arguments.paths)
    rules = Rules(arguments.min_lateness, arguments.clock_error, arguments.hang)
    found = find(data, rules)
    if arguments.json:
        print(json.dumps([_plain(one) for one in found], indent=2))
        return 0
    if not found:
        print(_NOTHING)
    for one in found:
        members = {rank: member for (comm, rank), member in data.members.items() if comm == one.comm}
        for line in _lines(one, members, rules):
            print(line)
    return 0


def _lines(one: Communicator, members: dict[int, Member], rules: Rules) -> Iterator[str]:
    hosts = (
        "1 host" if one.hosts == 1 else f"{one.hosts} hosts, whose clocks may differ by {_time(rules.clock_error_s)}"
    )
    yield (
        f"communicator {escaped(one.comm)}: {one.ranks} ranks on {hosts}, {one.compared} collectives compared, skew "
        f"{_time(one.skew_s)} in the median, {_time(one.skew_99_s)} in the 99th percentile"
    )
    if one.unseen:
        yield f"  no data of {_ranks(one.unseen)}: give the files of their hosts, too"
    for late in one.stragglers:
        yield (
            f"  straggler: rank {late.rank} (process {late.pid} on {escaped(late.host)}) comes {_time(late.lateness_s)} after the "
            f"others, last at {late.last} of {late.of} collectives, from {late.first_sequence} to {late.last_sequence}; score "
            f"{late.score:.0f}"
        )
    for mismatch in one.mismatches:
        said = "; ".join(f"{_ranks(ranks)}: {escaped(str(asked))}" for asked, ranks in mismatch.asked.items())
        yield f"  mismatch at collective {mismatch.sequence}: {said}"
    if one.mismatched > len(one.mismatches):
        yield f"  and {one.mismatched - len(one.mismatches)} more mismatches"
    for hang in one.hangs:
        what = f"collective {hang.sequence} ({escaped(str(hang.signature))})"
        if hang.kind is HangKind.MISSING:
            where = ", ".join(
                f"process {members[r].pid} on {escaped(members[r].host)}" for r in hang.ranks[:8] if r in members
            )
            yield (
                f"  hang: {_ranks(hang.ranks)}{f' ({where})' if where else ''} not at {what}, where {_ranks(hang.waiting)} "
                f"came {_time(hang.waiting_s)} ago"
            )
        else:
            yield f"  hang: {what} was entered by {_ranks(hang.waiting)}, and has not ended after {_time(hang.waiting_s)}"
    for slow in one.slow_links:
        link = slow.link
        yield (
            f"  slow link: {escaped(link.operation)} from port {link.port} of {escaped(link.device)} on {escaped(link.host)} to "
            f"{escaped(link.peer) or 'an unknown address'} takes {_time(slow.mean_s)} in the mean of {slow.requests}, "
            f"{_time(slow.others_s)} on the others"
        )
    if not (one.stragglers or one.mismatches or one.hangs or one.slow_links):
        yield "  no straggler, no mismatch, no hang, no slow link"


def _ranks(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}"


def _time(value_s: float) -> str:
    return f"{value_s:.1f} s" if value_s >= 1 else f"{value_s * 1e3:.1f} ms"


def _plain(one: Communicator) -> dict[str, object]:
    return {
        "comm": one.comm,
        "ranks": one.ranks,
        "hosts": one.hosts,
        "unseen": one.unseen,
        "compared": one.compared,
        "skew_s": one.skew_s,
        "skew_99_s": one.skew_99_s,
        "stragglers": [
            {
                "rank": late.rank,
                "host": late.host,
                "pid": late.pid,
                "lateness_s": late.lateness_s,
                "score": late.score,
                "last": late.last,
                "of": late.of,
                "first_sequence": late.first_sequence,
                "last_sequence": late.last_sequence,
            }
            for late in one.stragglers
        ],
        "mismatches": [
            {
                "sequence": m.sequence,
                "asked": [{**dataclasses.asdict(asked), "ranks": r} for asked, r in m.asked.items()],
            }
            for m in one.mismatches
        ],
        "mismatched": one.mismatched,
        "hangs": [
            {
                "kind": hang.kind.value,
                "sequence": hang.sequence,
                "asked": None if hang.signature is None else dataclasses.asdict(hang.signature),
                "ranks": hang.ranks,
                "waiting": hang.waiting,
                "waiting_s": hang.waiting_s,
            }
            for hang in one.hangs
        ],
        "slow_links": [
            {**dataclasses.asdict(s.link), "mean_s": s.mean_s, "others_s": s.others_s, "requests": s.requests}
            for s in one.slow_links
        ],
    }
