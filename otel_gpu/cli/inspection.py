"""What is attached in this process: library, symbol, site, or why not? Looks, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..bpf.placed import PlacedProgram, placed_programs
from ..discovery import drivers
from ..discovery.catalogue import LibraryCatalogue
from ..discovery.libraries import Library
from ..errors import OtelGpuError, ProcessGoneError
from ..probes.attach import PlannedProbe
from ..probes.planning import PLANNING, PlanRequest, plan_library
from ..probes.sites import SiteRules
from ..probes.table import TABLES
from ..receivers.cuda.settings import CudaSettings
from ..runtime.privileges import perform, settle
from ..sandbox.files import FileId, MappedFile
from ..sandbox.mappings import executable_mappings
from ..sandbox.parsers import Parsers, WorkError
from ..signals.structs import Frozen

_KERNEL_NAME = 15


class InspectedProbe(Frozen):
    """One function of one library in the process; a library without probes has one with no symbol."""

    library: str
    kind: str
    symbol: str | None
    offset: int | None
    """File offset of the probe; None where there is none."""
    instruction: str | None
    """The probed instruction, at `site` bytes behind the function's entry."""
    site: int | None
    cost: str | None
    attached: bool | None
    """Whether an agent's probe is there now; None where the kernel does not tell."""
    why: str | None
    """Why it is not probed, or not at a cheaper instruction."""


def inspect(pid: int, settings: CudaSettings | None = None) -> list[InspectedProbe]:
    """Return what is probed in a process, by library; OtelGpuError where it cannot be looked at."""
    settings = settings or CudaSettings()
    with Parsers() as parsers:
        try:
            mappings = executable_mappings(parsers, pid)
        except ProcessGoneError as e:
            raise OtelGpuError(f"process {pid}: there is no such process; give the pid of a running one") from e
        except PermissionError as e:
            raise OtelGpuError(
                f"process {pid}: its memory map may not be read; run as root or with CAP_SYS_PTRACE"
            ) from e
        placed = perform(_placed)
        settle()
        seen: set[FileId] = set()
        rows: list[InspectedProbe] = []
        for file, library in LibraryCatalogue(parsers).look_up([m for m in mappings if m.inode]):
            if not library.kind.is_secondary and library.id not in seen:
                seen.add(library.id)
                rows += _library(parsers, library, file, settings, placed)
        return rows


def _library(
    parsers: Parsers,
    library: Library,
    file: MappedFile,
    settings: CudaSettings,
    placed: list[PlacedProgram] | None,
) -> Iterator[InspectedProbe]:
    if library.kind not in TABLES:
        yield _unprobed(library, "the driver is probed, which every runtime calls")
        return
    rules = SiteRules.here(settings.site, allow_single_step=settings.arm64_single_step or not drivers.is_arm64())
    try:
        plans = list(parsers.run(plan_library, [file], PlanRequest("counts", rules, library.kind), limits=PLANNING))
    except WorkError as e:
        yield _unprobed(library, str(e))
        return
    if not plans:
        yield _unprobed(library, "the file cannot be opened any more")
    here = None if placed is None else {(p.program, p.offset) for p in placed if _same_file(p.path, library)}
    for probe in (probe for plan in plans for probe in plan.probes):
        yield _row(library, probe, here)


def _row(library: Library, probe: PlannedProbe, here: set[tuple[str, int]] | None) -> InspectedProbe:
    attached = None
    if probe.offset is None:
        attached = False
    elif here is not None:
        attached = (probe.program[:_KERNEL_NAME], probe.offset) in here
    return InspectedProbe(
        library=library.path,
        kind=library.kind.value,
        symbol=probe.symbol,
        offset=probe.offset,
        instruction=probe.instruction or None,
        site=probe.site if probe.placeable else None,
        cost=probe.cost.value,
        attached=attached,
        why=probe.reason,
    )


def _unprobed(library: Library, why: str) -> InspectedProbe:
    return InspectedProbe(library.path, library.kind.value, None, None, None, None, None, attached=False, why=why)


def _same_file(path: str, library: Library) -> bool:
    """Compare by file, for the kernel's path is not the process's in a container."""
    if path == library.path:
        return True
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (library.id.device, library.id.inode)


def _placed() -> list[PlacedProgram] | None:
    try:
        return list(placed_programs())
    except OSError:
        return None  # before Linux 6.6, or without CAP_SYS_ADMIN
