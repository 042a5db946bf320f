"""What does a probe add to a launch? Ours against an empty program, an entry probe and a record for each call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bench import ground
from bench.ground import UnavailableError
from bench.probing import Ours, Rivals, interleave, nothing, side_by_side, typical
from bench.results import Result, unmeasured
from bench.target import Target

LAUNCH = ("cuLaunchKernel",)
_CALLS = 20_000
_SLOW_CALLS = 5_000
"""Of entry probes, each ten times as long."""
_TURN, _TURNS = 300, 20
"""Launches of a turn, and turns for each round."""


def measure(rounds: int) -> Iterator[Result]:
    """Measure launches through the runtime, then at the driver's door."""
    with closing(Ours()) as ours, closing(Rivals()) as rivals:
        try:
            yield from _through_runtime(ours, rivals, rounds)
        except UnavailableError as e:
            yield unmeasured("cost per launch, ours / empty probe", str(e))
        yield from _sites(ours, rivals, rounds, ground.mock_driver() / "libcuda.so.1", "driver's prologue")
        try:
            real = ground.real_driver()
        except UnavailableError as e:
            yield unmeasured("entry / our site, NVIDIA's driver", str(e))
        else:
            yield from _sites(ours, rivals, rounds, real / "libcuda.so.1", "NVIDIA's driver 535", judged=False)
        yield _against_record(ours, rivals, rounds)


def _through_runtime(ours: Ours, rivals: Rivals, rounds: int) -> Iterator[Result]:
    before = ours.counted()
    took = side_by_side(
        Target.on_runtime,
        f"launch {_TURN}",
        rounds * _TURNS,
        {
            "none": lambda _: nothing(),
            "empty": lambda library: rivals.empty(library, LAUNCH),
            "reads": lambda library: rivals.reads(library, LAUNCH),
            "ours": lambda library: ours.on(library, LAUNCH),
        },
    )
    if ours.counted() - before < rounds * _TURNS * _TURN:
        raise UnavailableError("not every launch was counted")
    added = (took["ours"] - took["none"]) / (took["empty"] - took["none"])
    yield Result(
        "cost per launch, ours / empty probe at the same site, through the runtime",
        _ns(took["ours"]),
        _ns(took["empty"]),
        took["ours"] / took["empty"],
        must=1.15,
        aim=1.1,
        note=f"unprobed {_ns(took['none'])}; what the probe alone adds: {added:.2f}×; "
        f"a program that reads who calls and the arguments, and counts nothing: {took['reads'] / took['empty']:.2f}×",
    )


def _sites(
    ours: Ours, rivals: Rivals, rounds: int, library: Path, where: str, *, judged: bool = True
) -> Iterator[Result]:
    library = library.resolve()
    with Target.on_driver(library.parent) as target:
        measured = interleave(
            target,
            library,
            "launch",
            _SLOW_CALLS,
            rounds,
            {
                "none": nothing,
                "entry": lambda: rivals.empty(library, LAUNCH, "entry"),
                "site": lambda: rivals.empty(library, LAUNCH),
                "ours at entry": lambda: ours.on(library, LAUNCH, "entry"),
                "ours": lambda: ours.on(library, LAUNCH),
            },
        )
    took = typical(measured, "entry", "site")
    yield Result(
        f"entry attach / our site, {where}",
        _ns(took["site"]),
        _ns(took["entry"]),
        took["entry"] / took["site"],
        must=8 if judged else None,
        aim=13 if judged else None,
        at_least=True,
        note=f"empty programs; with ours in them {_ns(took['ours at entry'])} / {_ns(took['ours'])} = "
        f"{took['ours at entry'] / took['ours']:.1f}×; unprobed {_ns(took['none'])}",
    )


def _against_record(ours: Ours, rivals: Rivals, rounds: int) -> Result:
    library = ground.mock_driver() / "libcuda.so.1"
    with Target.on_driver() as target:
        measured = interleave(
            target,
            library,
            "launch",
            _CALLS,
            rounds,
            {
                "none": nothing,
                "record": lambda: rivals.record(library, LAUNCH),
                "ours": lambda: ours.on(library, LAUNCH),
                "empty": lambda: rivals.empty(library, LAUNCH),
            },
        )
    took = typical(measured, "ours", "record")
    programs = (took["ours"] - took["empty"]) / (took["record"] - took["empty"])
    return Result(
        "ours / one ring-buffer record a call, same site",
        _ns(took["ours"]),
        _ns(took["record"]),
        took["ours"] / took["record"],
        must=1.0,
        aim=0.7,
        note=f"the programs alone, above an empty one ({_ns(took['empty'])}): {programs:.2f}×; the record's consumer is not counted",
    )


def _ns(value: float) -> str:
    return f"{value:.0f} ns"
