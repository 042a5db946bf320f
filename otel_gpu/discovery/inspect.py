"""What would be attached in this process, where, and why not elsewhere? Looks, and touches nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ..elf import ElfFile
from ..errors import ElfError, OtelGpuError, ProcessGoneError
from ..probes.attach import plan
from ..probes.sites import Cost, Policy
from ..probes.table import DRIVER
from . import procfs
from .libraries import Library, LibraryCatalogue, LibraryKind


@dataclass(frozen=True, slots=True)
class InspectedProbe:
    """One function of one library of the process."""

    library: str
    kind: str
    """What the library is: CUDA driver, CUDA runtime, static CUDA runtime."""
    build_id: str | None
    symbol: str
    offset: int | None
    """File offset of the probe."""
    site: int
    """Bytes between the function's entry and the probe."""
    instruction: str
    cost: str
    attached: bool
    """Whether the agent attaches here."""
    why: str
    """Why not, or why not at a cheaper place; empty where there is nothing to say."""


def inspect(pid: int, *, policy: Policy = "fast", allow_single_step: bool = True) -> list[InspectedProbe]:
    """Return every function of interest of a process; OtelGpuError where the process cannot be looked at."""
    try:
        mappings = procfs.executable_mappings(pid)
    except ProcessGoneError as e:
        raise OtelGpuError(f"process {pid} does not exist; look its number up with ps or nvidia-smi") from e
    except PermissionError as e:
        raise OtelGpuError(f"process {pid} may not be looked at; run as root or with CAP_SYS_PTRACE") from e
    catalogue = LibraryCatalogue()
    seen: set[object] = set()
    found: list[InspectedProbe] = []
    for mapping in mappings:
        openers = (mapping.opener(pid), f"/proc/{pid}/root{mapping.path}")
        library = catalogue.look_up(mapping.device, mapping.inode, mapping.path, openers)
        if library is None or library.id in seen:
            continue
        seen.add(library.id)
        found.extend(_library(library, openers, policy, allow_single_step))
    return found


def _library(
    library: Library, openers: tuple[str, ...], policy: Policy, allow_single_step: bool
) -> list[InspectedProbe]:
    if library.kind is not LibraryKind.DRIVER:
        why = "its calls are counted where they reach the driver"
        return [_row(library, "*", None, 0, "", Cost.NONE, False, why)]
    for opener in openers:
        try:
            with ElfFile(opener) as elf:
                probes = plan(elf, DRIVER, policy=policy, allow_single_step=allow_single_step)
                break
        except (OSError, ElfError) as e:
            problem = str(e)
    else:
        return [_row(library, "*", None, 0, "", Cost.NONE, False, problem)]
    present = {p.symbol for p in probes}
    rows = [
        _row(library, p.symbol, p.offset, p.site, p.instruction, p.cost, p.placeable, p.reason or "") for p in probes
    ]
    missing = [name for hook in DRIVER for name, _ in hook.symbols() if name not in present]
    rows += [_row(library, name, None, 0, "", Cost.NONE, False, "not exported by this driver") for name in missing]
    return rows


def _row(
    library: Library,
    symbol: str,
    offset: int | None,
    site: int,
    instruction: str,
    cost: Cost,
    attached: bool,
    why: str,
) -> InspectedProbe:
    return InspectedProbe(
        library.path,
        library.kind.value,
        library.build_id,
        symbol,
        offset,
        site,
        instruction,
        cost.name.lower().replace("_", "-"),
        attached,
        why,
    )
