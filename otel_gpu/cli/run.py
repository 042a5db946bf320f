"""How is the agent run? Until it is told to stop, its time is over, or nothing is left to observe."""

from __future__ import annotations

import argparse
import logging
import math
import os
import threading
import time
from typing import TYPE_CHECKING

from ..config.model import Config
from ..errors import ConfigError, OtelGpuError
from ..runtime import privileges
from ..service import rights
from . import logs
from .capabilities import keep_only
from .durations import duration
from .signals import LastResort, stop_signals

if TYPE_CHECKING:
    from ..service.agent import Agent

NAME = "run"
HELP = "observe GPU processes and export what they do"

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_READY_S = 30.0
_READY_LOOK_S = 0.05
_LOOK_S = 2.0
"""How late a signal may be noticed where there is no room for the thread that hears of it."""

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--config", metavar="FILE", help="YAML, in the OpenTelemetry Collector's shape")
    add_processes(parser, "observe only these processes and their descendants")
    parser.add_argument("-d", "--duration", metavar="SECONDS", type=duration, help="stop after this long")
    parser.add_argument("--output", metavar="WHERE", help="file:DIRECTORY, console or otlp, in place of the configured")
    parser.add_argument("--profiles", action="store_true", help="take profiles too, and not only when configured")
    parser.add_argument(
        "--traces", action="store_true", help="follow inference requests too, each a span with the GPU's work for it"
    )


def add_processes(parser: argparse.ArgumentParser, says: str, *short: str) -> None:
    """Declare the options that name processes, and that leave their descendants out."""
    parser.add_argument("--pid", *short, metavar="PID", type=pid, nargs="+", action="extend", default=[], help=says)
    parser.add_argument(
        "--no-children",
        dest="children",
        action="store_false",
        help="leave out what the processes start, and have started",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the agent."""
    config = Config.load(
        arguments.config,
        pids=tuple(arguments.pid),
        output=arguments.output,
        duration_s=arguments.duration,
        profiles=arguments.profiles,
        traces=arguments.traces,
        children=arguments.children,
    )
    logs.configure(logging.DEBUG if arguments.debug else _LEVELS[config.log_level], timestamps=True)
    if config.disabled:
        for notice in config.notices:
            _log.warning("%s", notice)
        _log.warning("OTEL_SDK_DISABLED is true: nothing is observed")
        return 0
    if not config.discovery.everything:
        require_processes(config.discovery.pids)
    pids = () if config.discovery.everything else config.discovery.pids
    needed = keep_only(rights.of_run(config), arguments, pids)
    # The heavy half of the program, which starts threads; --help and mistakes in the configuration do without it.
    from ..service.agent import Agent

    agent = Agent(config)
    with LastResort() as last_resort, stop_signals(last_resort.arm, agent.end_wait) as told_to_stop:
        try:
            agent.start()
            privileges.settle(needed.placing)
            for idle in agent.without_gpu():
                _log.warning(
                    "process %d has mapped no library of CUDA or HIP: it is observed once it does; see `otel-gpu inspect %d`",
                    idle,
                    idle,
                )
            if "profiles" in config.signals and pids:
                _wait_until_ready(agent, told_to_stop)
            deadline = math.inf if config.duration_s is None else time.monotonic() + config.duration_s
            while not told_to_stop.is_set():
                left = deadline - time.monotonic()
                if left <= 0 or agent.wait(min(left, _LOOK_S)):
                    break
        finally:
            last_resort.arm()
            # Flushes the last interval.
            is_complete = agent.stop()
    if agent.delivered_nothing:
        _log.error("nothing could be delivered to anybody: the reasons are above; see `otel-gpu doctor`")
        return 1
    return 0 if is_complete else 1


def _wait_until_ready(agent: Agent, told_to_stop: threading.Event) -> None:
    """Wait until the first stacks of chosen processes can be taken: `--duration` counts from then."""
    deadline = time.monotonic() + _READY_S
    while not agent.is_ready() and time.monotonic() < deadline:
        if told_to_stop.wait(_READY_LOOK_S):
            return
    _log.info("stacks are being taken")


def require_processes(pids: tuple[int, ...]) -> None:
    """Raise OtelGpuError where one of them is not there."""
    missing = [p for p in pids if not os.path.exists(f"/proc/{p}")]
    if missing:
        names = ", ".join(map(str, missing))
        raise OtelGpuError(
            f"process {names}: there is no such process; list those on the GPU with nvidia-smi, or leave --pid out"
        )


def pid(text: str) -> int:
    """Return the pid that an option says."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:20]) <= 1 << 22:
        raise ConfigError(f"{text} is no pid; give a number such as 4711")
    return int(text)
