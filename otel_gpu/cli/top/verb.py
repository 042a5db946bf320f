"""What do GPU processes do right now? A table that goes on; by an agent of its own, or from one that runs already."""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import sys
from collections import deque
from collections.abc import Iterator

from ...config.model import Config
from ...errors import ConfigError
from ...runtime import privileges
from ...service import rights
from ...text import escaped
from ..capabilities import keep_only
from ..durations import duration, interval
from ..logs import EscapingFormatter
from ..progress import bar
from ..run import add_processes, require_processes
from ..signals import LastResort, stop_signals
from ..terminals import knows_utf8

NAME = "top"
HELP = "show live what GPU processes do"

_MAX_KEPT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    add_processes(parser, "show only these processes and their descendants")
    parser.add_argument(
        "--from",
        dest="url",
        metavar="URL",
        help="show what an agent that runs already observes: the address of its exporter `prometheus`, such as "
        "http://localhost:9464/metrics",
    )
    parser.add_argument("--traces", action="store_true", help="follow inference requests too")
    parser.add_argument(
        "--interval", metavar="SECONDS", type=interval, default=1.0, help="from one look to the next (default 1)"
    )
    parser.add_argument("-d", "--duration", metavar="SECONDS", type=duration, help="stop after this long")
    parser.add_argument("--once", action="store_true", help="print the tables of one interval, and end")
    parser.add_argument("--json", action="store_true", help="print an object for each interval")
    parser.add_argument("--config", metavar="FILE", help="the agent's file, for what it observes, and how")


def run(arguments: argparse.Namespace) -> int:
    """Show it."""
    from .live import Asked

    pids = tuple(dict.fromkeys(arguments.pid))
    what = arguments.url or (f"process {', '.join(map(str, pids))}" if pids else os.uname().nodename)
    asked = Asked(
        what=escaped(what, 80),
        interval_s=arguments.interval,
        duration_s=math.inf if arguments.duration is None else arguments.duration,
        once=arguments.once,
        as_json=arguments.json,
        in_utf8=knows_utf8(),
    )
    if arguments.url is None:
        return _by_own_agent(arguments, asked, pids)
    if pids or arguments.traces or arguments.config:
        raise ConfigError("--from shows what an agent observes: leave --pid, --traces and --config out")
    from .live import follow
    from .scraped import ScrapedSource

    # Nothing of the host is looked at.
    privileges.limit(frozenset(), frozenset()) if arguments.is_command else None
    with ScrapedSource(arguments.url) as source, stop_signals() as told_to_stop:
        follow(source, asked, told_to_stop, sys.stdout)
    return 0


def _by_own_agent(arguments: argparse.Namespace, asked: object, pids: tuple[int, ...]) -> int:
    from .live import Asked, follow, is_interactive
    from .sources import AgentSource, alone

    assert isinstance(asked, Asked)
    # Where others send what they observe is nothing to this agent.
    config = Config.load(arguments.config, environ={}, pids=pids, traces=arguments.traces, children=arguments.children)
    config = alone(config, asked.interval_s)
    if not config.discovery.everything:
        require_processes(config.discovery.pids)
    needed = keep_only(rights.of_run(config), arguments, pids)
    with LastResort() as last_resort, _kept_log(is_interactive(asked, sys.stdout)):
        source = AgentSource(config)
        with stop_signals(last_resort.arm) as told_to_stop:
            try:
                with bar() as shown:
                    shown.update("attaching")
                    source.start()
                privileges.settle(needed.placing)
                follow(source, asked, told_to_stop, sys.stdout)
            finally:
                last_resort.arm()
                source.close()
    return 0


@contextlib.contextmanager
def _kept_log(is_kept: bool) -> Iterator[None]:
    """Keep what is logged until the screen is a terminal's again: it would be written across the table."""
    if not is_kept:
        yield
        return
    root = logging.getLogger()
    handlers = [h for h in root.handlers if isinstance(h.formatter, EscapingFormatter)]
    kept = _Kept()
    for handler in handlers:
        root.removeHandler(handler)
    root.addHandler(kept)
    try:
        yield
    finally:
        root.removeHandler(kept)
        for handler in handlers:
            root.addHandler(handler)
            for record in kept.records:
                handler.handle(record)


class _Kept(logging.Handler):
    """The last of what was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: deque[logging.LogRecord] = deque(maxlen=_MAX_KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
