"""What do our probes add to an allocation and its free, against empty probes on both entries and returns?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from bench import ground
from bench.probing import Ours, Rivals, interleave, nothing, typical
from bench.results import Result
from bench.target import Target

PAIR = ("cuMemAlloc_v2", "cuMemFree_v2")
_CALLS = 5_000


def measure(rounds: int) -> Iterator[Result]:
    """Measure pairs at the driver's door."""
    library = ground.mock_driver() / "libcuda.so.1"
    with closing(Ours()) as ours, closing(Rivals()) as rivals, Target.on_driver() as target:
        measured = interleave(
            target,
            library,
            "pair",
            _CALLS,
            rounds,
            {
                "none": nothing,
                "empty": lambda: rivals.empty(library, PAIR, returns=True),
                "ours": lambda: ours.on(library, PAIR),
            },
        )
    took = typical(measured, "ours", "empty")
    added = (took["ours"] - took["none"]) / (took["empty"] - took["none"])
    yield Result(
        "alloc/free pair, ours / empty uprobe and uretprobe pairs",
        f"{took['ours']:.0f} ns",
        f"{took['empty']:.0f} ns",
        took["ours"] / took["empty"],
        must=1.5,
        note=f"unprobed {took['none']:.0f} ns; what the probes alone add: {added:.2f}×",
    )
