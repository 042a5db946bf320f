"""Runs a program's work in phases: says "ready" before each and "phase" after it, and waits for a line in between."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable

# What libraries print goes to standard error: their greetings are no events.
_OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def options() -> argparse.Namespace:
    """Return what the command line says: how many phases, and how often each repeats its work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--phases", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    return parser.parse_args()


def run(work: Callable[[], object], version: str) -> None:
    """Do the work of each phase when it is asked for."""
    asked = options()
    for phase in range(asked.phases):
        say("ready", phase, version)
        sys.stdin.readline()
        for _ in range(asked.rounds):
            work()
        say("phase", phase, version)


def say(event: str, phase: int, version: str) -> None:
    print(json.dumps({"event": event, "pid": os.getpid(), "phase": phase, "version": version}), file=_OUT, flush=True)
