"""Where would the probes of a library go? Worked out by a child, as it takes decoding what a stranger compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from ..discovery.libraries import LibraryKind
from ..sandbox.confinement import Limits
from ..sandbox.elf import ElfFile
from ..sandbox.work import OpenFile, work
from ..signals.profiles import ProfileType
from ..signals.structs import Frozen
from .attach import PlannedProbe, plan
from .counted import Counted
from .hook import Hook
from .sites import SiteRules
from .table import counted_hooks

PLANNING = Limits(answer_s=10.0, cpu_s=20, memory_bytes=1 << 30, answer_bytes=8 << 20)


class PlanRequest(Frozen):
    """Which functions are to be probed, and how."""

    purpose: Literal["counts", "profiles", "torch", "messages", "nccl", "nccl_streams"]
    rules: SiteRules
    kind: LibraryKind = LibraryKind.DRIVER
    counted: Counted = Counted.ALL
    types: tuple[ProfileType, ...] = ()
    """Of profiles."""
    name: str = ""
    """The library's file name, by which PyTorch's are told."""


class Plan(Frozen):
    """The probes of one library."""

    probes: tuple[PlannedProbe, ...]
    placed: int
    """How many of their sites have a probe already, if it was asked for."""


@work(PlanRequest, Plan)
def plan_library(files: Sequence[OpenFile], request: PlanRequest) -> Iterator[Plan]:
    """Yield where the probes of each file go."""
    for file in files:
        if file.descriptor >= 0:
            probes = tuple(_probes(ElfFile.of(file, file.path), request))
            yield Plan(probes, sum(_is_placed(file, p.offset) for p in probes if p.offset is not None))


def hooks_of(request: PlanRequest) -> Sequence[Hook]:
    """Return the rows of the table that a request is about."""
    if request.purpose == "profiles":
        from .profile import hooks_for

        return tuple(hooks_for(request.types, request.kind))
    return counted_hooks(request.kind, request.counted)


def _probes(elf: ElfFile, request: PlanRequest) -> list[PlannedProbe]:
    # Imported where they are used: an agent that only counts needs none of them.
    if request.purpose == "torch":
        from .torch import plan_torch, torch_hooks

        return plan_torch(elf, request.name, torch_hooks(request.types), request.rules)
    if request.purpose == "messages":
        from .messages import plan_messages

        return list(plan_messages(elf, request.rules))
    if request.purpose == "nccl":
        from .nccl import plan_nccl

        return list(plan_nccl(elf, request.rules))
    if request.purpose == "nccl_streams":
        from .nccl_streams import plan_streams

        return list(plan_streams(elf, request.rules))
    return plan(elf, hooks_of(request), request.rules)


def _is_placed(file: OpenFile, offset: int) -> bool:
    """Tell whether the kernel has put something else in the place of an instruction."""
    return file.code is not None and file.code[offset : offset + 1] != file.read(offset, 1)
