"""Every parser of what strangers say takes any bytes: a short run with fixed seeds, and every input that once broke one.

`make fuzz` goes on from here, led by coverage, for as long as one likes.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.fuzz.target import FINDINGS, Target
from tests.fuzz.targets import TARGETS

CHANGED = 40
"""Inputs made of each target's seeds."""
MOST_CPU_S = 5.0
"""For one input of a few kilobytes; they take milliseconds."""
_INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff" * 8,
    b"\0\0\0\0\0\0\0\x80",
    b"\x01\0\0\0\0\0\0\0",
    b"\r\n",
    b"_",
)


def changed(seeds: list[bytes], chance: random.Random, most: int) -> bytes:
    """Return a seed with some of its parts overwritten, cut out, doubled, or taken from another one."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 4)):
        begin, end = sorted(chance.randint(0, len(data)) for _ in range(2))
        match chance.randrange(6):
            case 0 if data:
                data[begin % len(data)] ^= 1 << chance.randrange(8)
            case 1:
                value = chance.choice(_INTERESTING)
                data[begin : begin + len(value)] = value
            case 2:
                del data[begin : min(end, begin + 64)]
            case 3:
                data[begin:begin] = data[begin:end][:256]
            case 4:
                other = chance.choice(seeds)
                data[begin:end] = other[begin:end]
            case _:
                data[begin : begin + 8] = chance.randbytes(8)
    return bytes(data[:most])


def execute(target: Target, data: bytes) -> None:
    began = time.thread_time()
    target.execute(data)
    assert time.thread_time() - began < MOST_CPU_S


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_parser_takes_whatever_it_is_given(target: Target) -> None:
    chance = random.Random(target.name)
    seeds = list(target.seeds())

    for data in (b"", *seeds, *(changed(seeds, chance, target.max_bytes) for _ in range(CHANGED))):
        execute(target, data)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("finding", sorted(FINDINGS.glob("*/*")), ids=lambda f: f"{f.parent.name}-{f.name}")
def test_what_once_broke_a_parser_does_so_no_more(finding: Path) -> None:
    execute(TARGETS[finding.parent.name], finding.read_bytes())


def test_findings_belong_to_a_target() -> None:
    assert {folder.name for folder in FINDINGS.iterdir()} <= TARGETS.keys()
