"""Which stacks did what, and when? Profiles as they came, with every stack once, so that any two stretches can be compared."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable

from ..signals.frame_names import clean
from ..signals.metrics import Resource
from ..signals.profiles import Frame, FrameKind, Profile, ProfileBuilder, ProfileType, Sample, Stack, marker, truncation
from ..signals.structs import Frozen
from .losses import Losses, Reason
from .resources import Resources
from .settings import Bounds
from .timelines import NS

_NO_ROOM: Stack = (truncation("the view had no room for the stack"),)


def _of_thread(sample: Sample) -> Stack:
    """Return a stack with the thread at its root, where the sample says whose it is: it is shown and found by its name."""
    name = next((value for key, value in sample.attributes if key == "thread.name"), "")
    return (*sample.stack, marker(f"[thread {name}]")) if name else sample.stack


class StoredProfile(Frozen):
    """One profile as it came, its stacks by number."""

    type: ProfileType
    resource: int
    start_ns: int
    end_ns: int
    stacks: array[int]
    values: array[int]


class ProfileStore:
    """All profiles. Guarded by whoever owns it."""

    def __init__(self, bounds: Bounds, losses: Losses, keep_s: float) -> None:
        self._bounds, self._losses = bounds, losses
        self._keep_ns = int(keep_s * NS)
        self._profiles: deque[StoredProfile] = deque()
        self._samples = self._frames_on_stacks = 0
        self._stacks: dict[Stack, int] = {_NO_ROOM: 0}
        self._by_number: dict[int, Stack] = {0: _NO_ROOM}
        self._frames: dict[Frame, Frame] = {}
        self._pending: array[int] = array("I")
        """Of the profile that is being taken."""
        self._last = 0
        self.samples = 0
        """All that were ever taken."""

    def __len__(self) -> int:
        return self._samples

    def take(self, profiles: Iterable[Profile], resources: Resources, now_ns: int) -> int:
        """Keep profiles; return how many samples were not."""
        rejected = 0
        for profile in profiles:
            count = len(profile.samples)
            end_ns = profile.start_ns + profile.duration_ns
            if not count:
                continue
            if end_ns < now_ns - self._keep_ns:
                self._losses.add(Reason.OLD, count)
                rejected += count
                continue
            entry = resources.entry(profile.resource.attributes, now_ns, count)
            if entry is None:
                rejected += count
                continue
            numbers, values = array("I"), array("q")
            self._pending = numbers
            for sample in profile.samples:
                numbers.append(self._number(_of_thread(sample)))
                values.append(max(-(2**62), min(2**62, sample.value)))
            self._losses.add(Reason.STACKS, numbers.count(0))
            self._profiles.append(
                StoredProfile(profile.type, entry.number, profile.start_ns, min(end_ns, now_ns), numbers, values)
            )
            self._samples += count
            self.samples += count
        while self._samples > self._bounds.samples:
            gone = self._profiles.popleft()
            self._samples -= len(gone.values)
            self._losses.add(Reason.SAMPLES, len(gone.values))
        return rejected

    def sweep(self, now_ns: int) -> None:
        """Forget profiles that ended before what is kept."""
        while self._profiles and self._profiles[0].end_ns < now_ns - self._keep_ns:
            self._samples -= len(self._profiles.popleft().values)

    def kinds(self, resources: frozenset[int] | None) -> dict[tuple[ProfileType, int], tuple[int, int]]:
        """Return which types there are of which resources, from when to when."""
        found: dict[tuple[ProfileType, int], tuple[int, int]] = {}
        for p in self._profiles:
            if resources is None or p.resource in resources:
                first, last = found.get((p.type, p.resource), (p.start_ns, p.end_ns))
                found[p.type, p.resource] = min(first, p.start_ns), max(last, p.end_ns)
        return found

    def between(self, name: str, resource: int, of: Resource, start_ns: int, end_ns: int) -> Profile | None:
        """Return what a resource's profiles of one type add up to, of those whose middle lies between two times."""
        chosen = [
            p
            for p in self._profiles
            if p.resource == resource and p.type.name == name and start_ns <= (p.start_ns + p.end_ns) // 2 < end_ns
        ]
        if not chosen:
            return None
        first = min(p.start_ns for p in chosen)
        builder = ProfileBuilder(chosen[-1].type, of, first)
        for p in chosen:
            for number, value in zip(p.stacks, p.values):
                builder.add(self._by_number[number], value)
        return builder.build(max(p.end_ns for p in chosen))

    def resources(self) -> set[int]:
        """Return the numbers of the resources that have profiles."""
        return {p.resource for p in self._profiles}

    def _number(self, stack: Stack) -> int:
        kept = tuple(self._frame(frame) for frame in stack)
        number = self._stacks.get(kept)
        if number is not None:
            return number
        if not self._has_room(len(kept)):
            self._forget_unused()
            if not self._has_room(len(kept)):
                return 0
        self._last += 1
        self._stacks[kept] = self._last
        self._by_number[self._last] = kept
        self._frames_on_stacks += len(kept)
        return self._last

    def _has_room(self, frames: int) -> bool:
        bounds = self._bounds
        return len(self._stacks) < bounds.stacks and self._frames_on_stacks + frames <= bounds.stack_frames

    def _forget_unused(self) -> None:
        used = {number for p in self._profiles for number in set(p.stacks)} | {0, *self._pending}
        self._by_number = {number: stack for number, stack in self._by_number.items() if number in used}
        self._stacks = {stack: number for number, stack in self._by_number.items()}
        self._frames_on_stacks = sum(map(len, self._stacks))
        frames = {frame for stack in self._stacks for frame in stack}
        self._frames = {frame: frame for frame in frames}

    def _frame(self, frame: Frame) -> Frame:
        known = self._frames.get(frame)
        if known is None:
            limit = self._bounds.text
            mapping = frame.mapping and frame.mapping._replace(
                path=clean(frame.mapping.path, limit), htlhash="", start=0, end=0
            )
            kept = Frame(
                FrameKind(frame.kind), clean(frame.function, limit), clean(frame.filename, limit), frame.line, mapping
            )._replace(address=frame.address)
            if len(self._frames) >= 4 * self._bounds.stacks:
                return kept
            known = self._frames[frame] = kept
        return known
