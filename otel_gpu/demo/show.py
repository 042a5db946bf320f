"""How does the demo go? The program and the agent side by side, tables while they run, totals and a flame graph after."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.live import Live

from .. import privileges
from ..config.model import Config
from ..config.settings import Discovery, ReceiverSettings
from ..errors import UnsupportedKernelError
from ..receivers.cuda.settings import CudaSettings
from ..receivers.nvml.settings import NvmlSettings
from ..receivers.self.settings import SelfSettings
from ..reporters.files import write_profile
from ..service.agent import Agent
from ..service.recording import Recording
from ..signals.profiles import CPU, GPU_ALLOC_SPACE, GPU_COPY, GPU_INUSE_SPACE, GPU_LAUNCHES, GPU_WAIT
from . import driver, screen
from .driver import DemoDriver
from .figures import Figures, figures
from .program import Program

_RECORDED = (GPU_LAUNCHES, GPU_WAIT, GPU_COPY, GPU_ALLOC_SPACE, GPU_INUSE_SPACE, CPU)
_REFRESH_S = 1.0
_LOOK_S = 0.1
_PLAIN_WIDTH = 120
"""Where nobody is at the terminal."""


def show(duration_s: float, output: Path | None, told_to_stop: threading.Event) -> None:
    """Run the demo; OtelGpuError where it cannot be."""
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    found = driver.find()
    with ExitStack() as parts:
        with console.status("starting a program and attaching to it"):
            program = parts.enter_context(Program(found))
            agent = parts.enter_context(Agent(_config(found, program.pid)))
            program.load()
            recorder = _recorder(console, program.pid)
            if recorder is not None:
                parts.enter_context(recorder)
                recorder.start()
            privileges.settle()
        console.print(_introduction(found, program.pid), style="bold", soft_wrap=True)
        program.go()
        _watch(console, agent, program, duration_s, told_to_stop)
        did = program.finish()
        counted = figures(agent.snapshot())
        console.print(screen.totals(counted, did))
        if counted.lost:
            console.print(f"{counted.lost:,} events could not be counted in full", style="red")
        if recorder is not None:
            _keep(console, recorder, output)
        with console.status("taking the probes out"):
            parts.close()


def _config(found: DemoDriver, pid: int) -> Config:
    receivers: dict[str, ReceiverSettings] = {"cuda": CudaSettings(libraries=(found.library,)), "self": SelfSettings()}
    if found.real:
        receivers["nvml"] = NvmlSettings()
    # Nothing is sent anywhere: what is shown is read from the agent itself.
    return Config(receivers=receivers, exporters={}, discovery=Discovery(pids=(pid,)))


def _recorder(console: Console, pid: int) -> Recording | None:
    try:
        return Recording(pid, _RECORDED)
    except UnsupportedKernelError as error:
        console.print(f"no flame graph: {error}")
        return None


def _introduction(found: DemoDriver, pid: int) -> str:
    driver = found.library if found.real else "the mock driver, whose kernels take time and compute nothing"
    return f"observing python -m {found.module}, pid {pid}, on {driver}\n"


def _watch(console: Console, agent: Agent, program: Program, duration_s: float, told_to_stop: threading.Event) -> None:
    """Show the figures until the time is over."""
    began = before_at = time.monotonic()
    before = Figures()
    with Live(console=console, auto_refresh=False) as live:
        while time.monotonic() - began < duration_s and not told_to_stop.wait(_LOOK_S):
            program.check()
            now = time.monotonic()
            if now - before_at >= _REFRESH_S:
                current = figures(agent.snapshot())
                live.update(screen.live(current, before, now - before_at), refresh=console.is_terminal)
                before, before_at = current, now


def _keep(console: Console, recorder: Recording, output: Path | None) -> None:
    """Write the flame graph and say where."""
    profiles = sorted(recorder.finish(), key=lambda p: _RECORDED.index(p.type))
    complete, truncated = recorder.truncated
    if not profiles:
        console.print("\nno flame graph: the demo was over before a stack was taken")
        return
    if output is None:
        handle, name = tempfile.mkstemp(prefix="otel-gpu-demo-", suffix=".html")
        os.close(handle)
        output = Path(name)
    write_profile(profiles, output)
    share = f"{truncated} of them cut short" if truncated else "all complete"
    console.print(f"\nflame graph of {complete + truncated:,} stacks, {share}: {output}", soft_wrap=True)
