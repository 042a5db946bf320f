"""Which kernels keep their names? The top K of each process; the rest are `other`, so that totals stay exact.

A kernel is among the top by its launches or by the blocks it launched, whichever ranks it higher. A kernel that
becomes important later takes the place of the least important one, whose series stands still from then on; a
process never gets more than 2 K names in its life. Names are demangled before they are ranked, so that kernels that
differ only in what `short` leaves out are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

from ...components import Processor
from ...signals import cuda, hip
from ...signals.metrics import Attributes, Buckets, Measurement, Resource
from ...signals.profiles import FrameKind, Profile, ProfileBuilder
from ...signals.structs import Record
from ...signals.telemetry import OTHER
from ...stacks.demangle.names import demangle, shorten

NAME = "cuda.kernel.name"
_NAMES = (NAME, hip.KERNEL_NAME)
_LAUNCHES = {
    cuda.KERNEL_LAUNCH_CALLS,
    cuda.GRAPH_KERNEL_CALLS,
    hip.KERNEL_LAUNCH_CALLS,
    hip.GRAPH_KERNEL_CALLS,
}
_BLOCKS = {cuda.KERNEL_GRID_SIZE, hip.KERNEL_GRID_SIZE}
_DEMANGLERS: dict[str, Callable[[str], str]] = {"full": demangle, "short": shorten, "off": str}
_LIFETIME = 2
_DISPLACE = 2
"""How many times as important a kernel must be to take another's place."""
_MAX_RANKED = 16_384
"""Kernels of one process that are ranked; beyond that the lower half is forgotten, and ranked anew when it comes again."""


class _Ranking(Record):
    launches: Counter[str] = msgspec.field(default_factory=Counter)
    blocks: Counter[str] = msgspec.field(default_factory=Counter)
    named: set[str] = msgspec.field(default_factory=set)
    ever_named: set[str] = msgspec.field(default_factory=set)


class KernelNames(Processor):
    """Keeps the cardinality of kernel names bounded."""

    def __init__(self, top: int, demangle: Literal["full", "short", "off"] = "full") -> None:
        """Keep `top` names a process; 0 takes names away altogether."""
        self._top = top
        self._demangle = _DEMANGLERS[demangle]
        self._rankings: dict[Resource, _Ranking] = {}

    def metrics(self, measurements: list[Measurement]) -> list[Measurement]:
        """Replace names outside the top K by `other`, and fold what becomes equal."""
        named = [(m, self._demangle(name)) for m in measurements if (name := _name(m.attributes)) is not None]
        if not named:
            return measurements
        if self._top:
            for m, name in named:
                self._note(m, name)
            for resource in {m.resource for m, _ in named}:
                self._choose(self._rankings[resource])
        rest = [m for m in measurements if _name(m.attributes) is None]
        return rest + [self._renamed(m, name) for m, name in named]

    def profiles(self, profiles: list[Profile]) -> list[Profile]:
        """Shorten the names of kernels, where short ones are wanted; stacks hold them all, however many they are."""
        if self._demangle is not shorten:
            return profiles
        return [_shortened(profile) for profile in profiles]

    def forget(self, resource: Resource) -> None:
        """Drop the ranking of a process that has ended."""
        self._rankings.pop(resource, None)

    def _note(self, m: Measurement, name: str) -> None:
        ranking = self._rankings.setdefault(m.resource, _Ranking())
        if m.metric in _LAUNCHES:
            assert isinstance(m.value, int)
            ranking.launches[name] += m.value
        elif m.metric in _BLOCKS:
            assert isinstance(m.value, Buckets)
            ranking.blocks[name] += int(m.value.sum)

    def _choose(self, ranking: _Ranking) -> None:
        importance = _importance(ranking)
        order = sorted(importance, key=lambda name: (-importance[name], name))
        for name in order[: self._top]:
            if name in ranking.named:
                continue
            if len(ranking.named) >= self._top:
                weakest = min(ranking.named, key=lambda n: (importance[n], n))
                if (
                    importance[name] < _DISPLACE * importance[weakest]
                    or len(ranking.ever_named | {name}) > _LIFETIME * self._top
                ):
                    continue
                ranking.named.discard(weakest)
            ranking.named.add(name)
            ranking.ever_named.add(name)
        if len(order) > _MAX_RANKED:
            kept = ranking.named.union(order[: _MAX_RANKED // 2])
            ranking.launches = Counter({n: c for n, c in ranking.launches.items() if n in kept})
            ranking.blocks = Counter({n: c for n, c in ranking.blocks.items() if n in kept})

    def _renamed(self, m: Measurement, name: str) -> Measurement:
        if not self._top:
            attrs = tuple(a for a in m.attributes if a[0] not in _NAMES)
        else:
            shown = name if name in self._rankings[m.resource].named else OTHER
            attrs = tuple((k, shown) if k in _NAMES else (k, v) for k, v in m.attributes)
        return Measurement(m.resource, m.metric, attrs, m.value)


def _importance(ranking: _Ranking) -> dict[str, float]:
    """Return each kernel's share of the launches or of the blocks, whichever is larger."""
    launches = max(ranking.launches.total(), 1)
    blocks = max(ranking.blocks.total(), 1)
    names = ranking.launches.keys() | ranking.blocks.keys()
    return {n: max(ranking.launches[n] / launches, ranking.blocks[n] / blocks) for n in names}


def _shortened(profile: Profile) -> Profile:
    shortened = ProfileBuilder(profile.type, profile.resource, profile.start_ns)
    for sample in profile.samples:
        stack = tuple(
            frame._replace(function=shorten(frame.function)) if frame.kind is FrameKind.CUDA else frame
            for frame in sample.stack
        )
        shortened.add(stack, sample.value, sample.attributes, sample.link)
    return shortened.build(profile.start_ns + profile.duration_ns)


def _name(attrs: Attributes) -> str | None:
    for key, value in attrs:
        if key in _NAMES:
            return str(value)
    return None
