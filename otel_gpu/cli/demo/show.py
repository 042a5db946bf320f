"""How does the demo go? Programs, the agent and the view side by side, tables while they run, totals and a flame graph after."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.live import Live

from ...config.model import Config
from ...config.settings import Discovery, ExporterSettings, ReceiverSettings
from ...exporters.otlp.settings import OtlpSettings
from ...exporters.recordings.files import write_profile
from ...receivers.cuda.settings import CudaSettings
from ...receivers.inference.settings import InferenceSettings
from ...receivers.nvml.settings import NvmlSettings
from ...receivers.profiles.settings import ProfileSettings
from ...receivers.self.settings import SelfSettings
from ...runtime import privileges
from ...service.agent import Agent
from ...signals.profiles import CPU, GPU_ALLOC_SPACE, GPU_COPY, GPU_INUSE_SPACE, GPU_LAUNCHES, GPU_WAIT, Profile, merge
from . import background_processes, driver, screen
from .driver import SERVER, DemoDriver
from .figures import Figures, figures
from .keys import Keys
from .program import Program

_ORDER = (GPU_LAUNCHES, GPU_WAIT, GPU_COPY, GPU_ALLOC_SPACE, GPU_INUSE_SPACE, CPU)
_REFRESH_S = 1.0
_INTERVAL_S = 1.0
_LOOK_S = 0.1
_PLAIN_WIDTH = 120
"""Where nobody is at the terminal."""
_WITHOUT_ANYBODY_S = 20.0
_CLIENTS = "otel_gpu.cli.demo.clients"


class KeptProfiles:
    """An exporter that adds up profiles, for the flame graph."""

    def __init__(self) -> None:
        self.profiles: list[Profile] = []

    def export_profiles(self, profiles: Sequence[Profile]) -> None:
        """Add them."""
        self.profiles = merge([*self.profiles, *profiles])


def show(duration_s: float | None, output: Path | None, told_to_stop: threading.Event) -> None:
    """Run the demo, until it is told to stop or its time is over; OtelGpuError where it cannot be."""
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    found = driver.find()
    with ExitStack() as parts:
        with console.status("starting programs and attaching to them"):
            view = _view(parts)
            programs = [parts.enter_context(Program(found, module)) for module in found.modules]
            kept = KeptProfiles()
            # Where stacks cannot be walked it says so, and goes on without.
            agent = parts.enter_context(Agent(_config(found, [p.pid for p in programs], view), exporters=(kept,)))
            for program in programs:
                program.load()
            privileges.settle()
        for program in programs:
            console.print(_introduction(found, program), style="bold", soft_wrap=True)
        keys = parts.enter_context(Keys())
        console.print(_invitation(view, keys, duration_s), style="bold green" if view else "", soft_wrap=True)
        for program in programs:
            program.go()
        server = next(p for p in programs if p.module == SERVER)
        clients = parts.enter_context(background_processes.BackgroundProcess(_CLIENTS, server.said))
        if duration_s is None and not keys.are_read:
            duration_s = _WITHOUT_ANYBODY_S
        _watch(console, agent, programs, duration_s, told_to_stop, keys)
        clients.close()
        did = _add([program.finish() for program in programs])
        counted = figures(agent.snapshot())
        console.print(screen.totals(counted, did))
        if counted.lost:
            console.print(f"{counted.lost:,} events could not be counted in full", style="red")
        with console.status("taking the probes out"):
            agent.stop()
            _keep(console, kept.profiles, output)
            parts.close()


def _view(parts: ExitStack) -> background_processes.DemoView | None:
    if background_processes.missing():
        return None
    view = background_processes.start_view()
    if view is not None:
        parts.enter_context(view)
    return view


def _config(found: DemoDriver, pids: Sequence[int], view: background_processes.DemoView | None) -> Config:
    receivers: dict[str, ReceiverSettings] = {
        "cuda": CudaSettings(libraries=(found.library,)),
        "self": SelfSettings(),
        "inference": InferenceSettings(),
        "profile": ProfileSettings(),
    }
    if found.real:
        receivers["nvml"] = NvmlSettings()
    exporters: dict[str, ExporterSettings] = {}
    if view is not None:
        exporters["otlp"] = OtlpSettings(endpoint=f"http://localhost:{view.grpc_port}", compression="none")
    # Without a view nothing is sent anywhere: what is shown is read from the agent itself.
    return Config(
        receivers=receivers,
        processors=Config().processors,
        exporters=exporters,
        discovery=Discovery(pids=tuple(pids)),
        interval_s=_INTERVAL_S,
    )


def _introduction(found: DemoDriver, program: Program) -> str:
    driver = found.library if found.real else "the mock driver, whose kernels take time and compute nothing"
    return f"observing python -m {program.module}, pid {program.pid}, on {driver}"


def _invitation(view: background_processes.DemoView | None, keys: Keys, duration_s: float | None) -> str:
    if view is not None:
        where = f"the view: {view.url}"
    else:
        where = f"no view: {background_processes.missing() or 'it did not start; otel-gpu view says why'}"
    if keys.are_read:
        return f"{where}    (q stops everything)\n"
    return f"{where}    (for {duration_s or _WITHOUT_ANYBODY_S:g} s)\n"


def _watch(
    console: Console,
    agent: Agent,
    programs: Sequence[Program],
    duration_s: float | None,
    told_to_stop: threading.Event,
    keys: Keys,
) -> None:
    """Show the figures until the time is over."""
    began = before_at = time.monotonic()
    before = Figures()
    with Live(console=console, auto_refresh=False) as live:
        while duration_s is None or time.monotonic() - began < duration_s:
            if told_to_stop.wait(_LOOK_S) or keys.stops():
                return
            for program in programs:
                program.check()
            now = time.monotonic()
            if now - before_at >= _REFRESH_S:
                current = figures(agent.snapshot())
                live.update(screen.live(current, before, now - before_at), refresh=console.is_terminal)
                before, before_at = current, now


def _add(tallies: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Add up what programs say they did; nothing, where one of them cannot say."""
    if not all(tallies):
        return {}
    did: Counter[str] = Counter()
    for tally in tallies:
        did.update(tally)
    return did


def _keep(console: Console, profiles: Sequence[Profile], output: Path | None) -> None:
    """Write the flame graph and say where."""
    order = [t.name for t in _ORDER]
    found = sorted((p for p in profiles if p.samples and p.type.name in order), key=lambda p: order.index(p.type.name))
    if not found:
        console.print("\nno flame graph: no stack was taken")
        return
    stacks = sum(len(p.samples) for p in found)
    truncated = any(p.truncated for p in found)
    if output is None:
        handle, name = tempfile.mkstemp(prefix="otel-gpu-demo-", suffix=".html")
        os.close(handle)
        output = Path(name)
    write_profile(found, output)
    share = "some of them cut short" if truncated else "all complete"
    console.print(f"\nflame graph of {stacks:,} stacks, {share}: {output}", soft_wrap=True)
