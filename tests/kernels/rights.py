"""Run inside a virtual machine: which rights does this kernel want for what, and does an agent without root count exactly?

Lines begin with `check: `. The first ones name, for each thing that is tried, the smallest sets of capabilities with which
another user than root can do it; the last ones say how an agent with the capabilities of a service fares in each way of
placing probes, and what it says where it cannot begin.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from otel_gpu.bpf.features import empty_program, probe
from otel_gpu.bpf.link_mode import LinkMode
from otel_gpu.bpf.links import BPF_TRACE_UPROBE_MULTI, Placement, attach_multi, open_uprobe
from otel_gpu.bpf.perf_event import PARANOID
from otel_gpu.errors import AttachError
from otel_gpu.runtime.privileges import Capability, limit
from otel_gpu.service import rights_trials
from otel_gpu.service.rights import SERVICE

_OBSERVER, _OBSERVED = 2000, 1000
_PR_SET_KEEPCAPS = 8
_OF_PERF = ("probes by perf events", "process events", "CPU samples")
_ADMIN = Capability.CAP_SYS_ADMIN
_OUT, _SAID = Path("/tmp/out"), Path("/tmp/said")
_LAUNCHES = 2000
_DEADLINE_S = 150


def main() -> None:
    with rights_trials.process_of_another_user() as pid:
        trials = _trials(pid)
        _try(trials)
        said = _agent("auto", None)
        _say(f"agent, auto, root: {said}")
        wrong = [] if said.startswith("EXACT") else ["root"]
        if probe().perf_events_need_admin:
            Path(PARANOID).write_text("2")
            _try({name: trials[name] for name in trials if name in _OF_PERF})
    features = probe()
    use = "no capability" if features.open_for_all else Capability.CAP_BPF.name
    _say(f"use of loaded programs and maps: {use}")
    modes: list[LinkMode] = ["multi"] * features.uprobe_multi + ["perf"] * features.attach_cookie + ["copies"]
    for mode in modes:
        said = _agent(mode, SERVICE)
        _say(f"agent, {mode}, a service's capabilities: {said}")
        if not said.startswith("EXACT"):
            said = _agent(mode, SERVICE | {_ADMIN})
            _say(f"agent, {mode}, and CAP_SYS_ADMIN: {said}")
            wrong += [] if said.startswith("EXACT") else [mode]
    if wrong:
        _say(f"WRONG counts of agents: {', '.join(wrong)}")


def _say(text: str) -> None:
    print(f"check: {os.uname().release} {text}", flush=True)


def _try(trials: Mapping[str, Callable[[], object]]) -> None:
    level = Path(PARANOID).read_text().strip()
    for name, trial in trials.items():
        sets = [" + ".join(c.name for c in sorted(s)) or "no capability" for s in _smallest(trial)]
        of_perf = f" (perf_event_paranoid {level})" if name in _OF_PERF else ""
        _say(f"{name}{of_perf}: {', or '.join(sets) or 'never'}")


def _trials(stranger: int) -> dict[str, Callable[[], object]]:
    trials: dict[str, Callable[[], object]] = {"load programs": lambda: os.close(empty_program())}
    if probe().uprobe_multi:
        program = empty_program(BPF_TRACE_UPROBE_MULTI)
        site = [Placement(0, 0)]
        trials["probes by multi links"] = lambda: attach_multi(program, __file__, site, at_return=False).close()
    return {
        **trials,
        "probes by perf events": lambda: os.close(open_uprobe(__file__, 0, at_return=False)),
        "process events": lambda: _raised(rights_trials.hear_of_processes()),
        "CPU samples": lambda: _raised(rights_trials.sample_cpus()),
        "list of links": lambda: _raised(rights_trials.list_links()),
        "others' maps": lambda: _raised(rights_trials.look_at(stranger)),
        "others' memory and environment": lambda: _raised(rights_trials.read_memory(stranger)),
        "others' mapped files": lambda: _raised(rights_trials.open_mapped(stranger)),
    }


def _raised(reason: str | None) -> None:
    if reason is not None:
        raise OSError(reason)


def _smallest(trial: Callable[[], object]) -> list[set[Capability]]:
    found: list[set[Capability]] = []
    for size in range(4):
        for chosen in map(set, itertools.combinations(sorted(SERVICE | {_ADMIN}), size)):
            if not any(f <= chosen for f in found) and _works(trial, chosen):
                found.append(chosen)
    return found


def _works(trial: Callable[[], object], held: Collection[Capability]) -> bool:
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        _become(_OBSERVER, held)
        trial()
        os._exit(0)
    except (OSError, AttachError):
        os._exit(1)


def _become(user: int, held: Collection[Capability] = ()) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    limit(held)


def _as(user: int, held: Collection[Capability], *command: str) -> list[str]:
    """Return the command line that runs a command as a user with these rights: of this program, which becomes it."""
    return [sys.executable, __file__, "as", str(user), ",".join(str(int(c)) for c in held), *command]


def _agent(mode: LinkMode, held: Collection[Capability] | None) -> str:
    """Run a program, and an agent beside it; return whether it counted what the program did, or what it said instead.

    With None for what is `held` it is root's.
    """
    for written in (_OUT, Path("/tmp/cache")):
        shutil.rmtree(written, ignore_errors=True)
    config = Path("/tmp/agent.yaml")
    config.write_text(json.dumps({"receivers": {"cuda": {"link": mode}, "self": None}}))
    program = subprocess.Popen(
        _as(_OBSERVED, (), "/work/small_program", "/work/small_driver.so", str(_LAUNCHES)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    program.stdout.readline()
    arguments = ["run", "--config", str(config), "--pid", str(program.pid), "--output", f"file:{_OUT}"]
    command = [sys.executable, "-m", "otel_gpu", *arguments]
    with _SAID.open("w") as said:
        agent = subprocess.Popen(
            command if held is None else _as(_OBSERVER, held, *command),
            env={**os.environ, "XDG_CACHE_HOME": "/tmp/cache", "OTEL_METRIC_EXPORT_INTERVAL": "2000"},
            stderr=said,
        )
    deadline = time.monotonic() + _DEADLINE_S
    while "observing" not in _SAID.read_text() and agent.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    program.stdin.write(b"\n")
    program.stdin.flush()
    # A stop takes no longer than ten seconds, which this machine is too slow for: what is counted is out before it.
    deadline = time.monotonic() + _DEADLINE_S
    while _counted() != _LAUNCHES and agent.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    program.communicate(b"\n")
    agent.terminate()
    began = time.monotonic()
    try:
        agent.wait(_DEADLINE_S)
    except subprocess.TimeoutExpired:
        agent.kill()
        return f"NOT ENDED {_SAID.read_text()}"
    counted = _counted()
    if counted == _LAUNCHES:
        return f"EXACT, ended within {time.monotonic() - began:.0f} s of being told"
    return f"{counted} of {_LAUNCHES}: {' '.join(_SAID.read_text().split())}"


def _counted() -> int:
    if not (_OUT / "metrics.jsonl").exists():
        return 0
    # The last line may be half written, and without programs that have ended.
    requests = map(json.loads, (_OUT / "metrics.jsonl").read_text().split("\n")[:-1])
    return max(map(_launches, requests), default=0)


def _launches(request: dict[str, Any]) -> int:
    metrics = (m for r in request["resourceMetrics"] for s in r["scopeMetrics"] for m in s["metrics"])
    found = [m for m in metrics if m["name"] == "gpu.cuda.kernel.launch.calls"]
    return sum(int(p["asInt"]) for m in found for p in m["sum"]["dataPoints"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["as"]:
        # As the service's LimitMEMLOCK has it.
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        _become(int(sys.argv[2]), {Capability(int(c)) for c in sys.argv[3].split(",") if c})
        os.execv(sys.argv[4], sys.argv[4:])
    os.chmod("/tmp", 0o1777)
    main()
