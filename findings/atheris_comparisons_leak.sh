#!/usr/bin/env bash
# Code that Atheris instruments leaks the result of each comparison that is not a bool.
#
# Atheris puts a function of its own in place of `==`, `<` and so on, to learn what an input is compared with. It calls the object's
# comparison and never gives up its own reference to what that returns. True and False hide it; NumPy's comparisons return arrays. A
# fuzzer of code that works on arrays reaches libFuzzer's limit of memory after some ten thousand executions, and libFuzzer reports
# "out-of-memory" and the input at hand, which takes no memory by itself.
#
# Run by hand, with network: it installs a pinned Atheris and NumPy from PyPI in a temporary folder (Python 3.11 to 3.13), compares in
# instrumented and in plain code, and fails when nothing leaks.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check atheris==3.0.0 numpy==2.2.6
"$folder/venv/bin/python" - <<'PYTHON'
import gc
import sys
from importlib.metadata import version

import atheris
import numpy as np

TIMES = 1000


class Result:
    """What a comparison returns that is no bool."""


class Operand:
    def __lt__(self, other):
        return Result()


def plain(value):
    return value < 5


@atheris.instrument_func
def instrumented(value):
    return value < 5


def live(kind):
    gc.collect()
    return sum(isinstance(thing, kind) for thing in gc.get_objects())


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


print("atheris", version("atheris"), "python", sys.version.split()[0])
left = {}
for compare in (plain, instrumented):
    for _ in range(TIMES):
        compare(Operand())
    left[compare.__name__] = live(Result)
    print(f"{compare.__name__}: {TIMES} comparisons leave {live(Result)} results, {live(Operand)} operands")
array = np.zeros(100_000)
for compare in (plain, instrumented):
    before = resident()
    for _ in range(TIMES):
        compare(array)
    print(f"{compare.__name__}: {TIMES} comparisons of an array of 100,000 numbers take {(resident() - before) / 1e6:.0f} MB for good")
if left != {"plain": 0, "instrumented": TIMES}:
    sys.exit("this has changed")
PYTHON
