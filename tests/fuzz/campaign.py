"""Fuzz every parser for a while, and say what was tried: `python -m tests.fuzz.campaign --minutes 60`.

Targets take turns, each in a process of its own, led by coverage. What they reached, their totals and what they found is
kept under the cache, so that campaigns add up; `--report` prints the totals as a table and does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.targets import TARGETS

_ROOT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "otel-gpu" / "fuzz"
_EXECUTED = re.compile(r"stat::number_of_executed_units: (\d+)")


def main() -> int:
    """Run, or report; exit status 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--turn", type=float, default=20.0, help="seconds that a target runs at a time")
    parser.add_argument("--report", action="store_true", help="print the totals of all campaigns so far")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="of: " + ", ".join(TARGETS))
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - TARGETS.keys():
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if arguments.report:
        report()
        return 0
    found = 0
    end = time.monotonic() + 60 * arguments.minutes
    while time.monotonic() < end:
        for name in arguments.targets or TARGETS:
            if time.monotonic() >= end:
                break
            found += _turn(name, max(1.0, min(arguments.turn, end - time.monotonic())))
    report()
    return 1 if found else 0


def _turn(name: str, seconds: float) -> bool:
    """Run one target; tell whether it found something."""
    found = _ROOT / "found" / name
    found.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", name, f"-max_total_time={seconds:.0f}"]
    command += [f"-artifact_prefix={found}/", f"-seed={time.time_ns() % (1 << 31)}"]
    environment = {**os.environ, "FUZZ_CORPUS": str(_ROOT / "corpus")}
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    said = done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace")
    executed = _EXECUTED.search(said)
    result = {
        "target": name,
        "executions": int(executed[1]) if executed else 0,
        "seconds": round(time.monotonic() - begin, 1),
        "found": done.returncode != 0,
    }
    with (_ROOT / "turns.jsonl").open("a") as log:
        log.write(json.dumps(result) + "\n")
    if done.returncode:
        print(f"{name}: found something; the input is in {found}", flush=True)
        print(*_interesting(said.splitlines()), sep="\n", flush=True)
    return done.returncode != 0


def _interesting(lines: Sequence[str]) -> Sequence[str]:
    begin = next((n for n, line in enumerate(lines) if "Uncaught Python exception" in line or "ERROR" in line), 0)
    return [line[:300] for line in lines[begin : begin + 40] if not line.startswith(("0x", "Base64"))]


def report() -> None:
    """Print what all campaigns did together."""
    totals: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    log = _ROOT / "turns.jsonl"
    for line in log.read_text().splitlines() if log.exists() else ():
        turn = json.loads(line)
        totals[turn["target"]][0] += turn["executions"]
        totals[turn["target"]][1] += turn["seconds"]
    print("| parser | executions | minutes | inputs that broke it, kept as tests |\n|---|---|---|---|")
    for name, target in TARGETS.items():
        executions, seconds = totals[name]
        print(f"| `{name}` | {executions:,} | {seconds / 60:.0f} | {len(target.findings())} |")
    executions, seconds = (sum(total[n] for total in totals.values()) for n in (0, 1))
    findings = sum(len(target.findings()) for target in TARGETS.values())
    print(f"| all | {executions:,} | {seconds / 60:.0f} | {findings} |")


if __name__ == "__main__":
    sys.exit(main())
