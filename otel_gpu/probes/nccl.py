"""Which functions of NCCL are probed, and where are their arguments? RCCL has the same, by the same names.

The signatures are nccl.h's, from 2.4 to 2.32. A function that calls another one of these, as ncclBcast does, is counted and the
other is not. `ncclX` and `pncclX` are one address, which is probed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..discovery.libraries import NCCL_NAMES, names_symbol
from ..sandbox.elf import ElfFile, Symbol
from ..signals.structs import Frozen
from .attach import PlannedProbe, plan_symbol
from .nccl_layout import CommLayout, layout_of
from .sites import SiteRules

NO_ARGUMENT = 15
_RANK_BITS, _RANK_AT, _RANKS_AT = 20, 23, 43


class NcclHook(Frozen):
    """One function: its programs, and the positions of the arguments that are read."""

    name: str
    program: str
    return_program: str | None = None
    count: int = NO_ARGUMENT
    datatype: int = NO_ARGUMENT
    reduction: int = NO_ARGUMENT
    comm: int = NO_ARGUMENT
    has_root: bool = False
    """The argument before the communicator is the root, or the other rank."""
    counts_as: str = ""
    """The collective's name, where the function's is another one."""

    @property
    def collective(self) -> str:
        """What it is called in `nccl.collective`."""
        return self.counts_as or self.name

    def cookie(self, function: int, layout: CommLayout | None) -> int:
        """Return the attach cookie, as ebpf/abi/nccl.h reads it, for the function numbered `function`."""
        value = function | self.count << 6 | self.datatype << 10 | self.comm << 14 | self.reduction << 18
        value |= self.has_root << 22
        if layout is not None and max(layout.rank, layout.ranks) // 4 < 1 << _RANK_BITS:
            value |= layout.rank // 4 << _RANK_AT | layout.ranks // 4 << _RANKS_AT
        return value


def _collective(name: str, count: int, comm: int, *, reduction: int = NO_ARGUMENT, **more: object) -> NcclHook:
    return NcclHook(name, "collective", "enqueued", count, count + 1, reduction, comm, **more)  # type: ignore[arg-type]


def _message(name: str) -> NcclHook:
    return NcclHook(name, "message", "enqueued", 1, 2, NO_ARGUMENT, 4, has_root=True)


_COLLECTIVES = (
    _collective("AllReduce", 2, 5, reduction=4),
    _collective("ReduceScatter", 2, 5, reduction=4),
    _collective("AllGather", 2, 4),
    _collective("AlltoAll", 2, 4),
    _collective("Broadcast", 2, 5, has_root=True),
    _collective("Reduce", 2, 6, reduction=4, has_root=True),
    _collective("Gather", 2, 5, has_root=True),
    _collective("Scatter", 2, 5, has_root=True),
)
HOOKS: tuple[NcclHook, ...] = (
    # Ends of groups before beginnings: a group whose end is not seen would go on for ever.
    NcclHook("GroupEnd", "group_ends", "group_ended"),
    NcclHook("GroupStart", "group_begins"),
    *_COLLECTIVES,
    _collective("Bcast", 1, 4, has_root=True, counts_as="Broadcast"),
    _message("Send"),
    _message("Recv"),
    NcclHook("CommInitRank", "comm_init", "comm_made"),
    NcclHook("CommInitRankConfig", "comm_init", "comm_made"),
    NcclHook("CommInitRankScalable", "comm_init_scalable", "comm_made"),
    NcclHook("CommInitAll", "comm_init_all", "comms_made"),
    NcclHook("CommSplit", "comm_split", "comm_made"),
    NcclHook("CommShrink", "comm_shrink", "comm_made"),
    NcclHook("CommGrow", "comm_grow", "comm_made"),
    NcclHook("CommDestroy", "comm_destroyed"),
    NcclHook("CommAbort", "comm_aborted"),
    # Of 2.32, with the configuration as one more argument. RCCL calls AlltoAll AllToAll.
    *(replace(hook, name=f"{hook.name}Config", counts_as=hook.name) for hook in _COLLECTIVES),
    _collective("AllToAll", 2, 4, counts_as="AlltoAll"),
)
"""By number: places in the table cross into the kernel."""
_TABLES = (".dynsym", ".symtab")


def nccl_symbols(elf: ElfFile) -> dict[str, Symbol]:
    """Return the functions of NCCL that a file defines, exported or not, by name; nothing where there is no whole NCCL in it."""
    wanted = {f"{prefix}{hook.name}" for hook in HOOKS for prefix in ("nccl", "pnccl")}
    wanted |= {"ncclCommUserRank", "ncclCommCount"}
    found: dict[str, Symbol] = {}
    for table in _TABLES:
        if not names_symbol(elf, table, NCCL_NAMES[0]):
            continue
        for symbol in elf.symbols(table):
            if symbol.name in wanted:
                found.setdefault(symbol.name, symbol)
        if set(NCCL_NAMES) <= found.keys():
            return found
    return {}


def plan_nccl(elf: ElfFile, rules: SiteRules) -> Iterator[PlannedProbe]:
    """Resolve the table in one file; what cannot be probed has a reason."""
    found = nccl_symbols(elf)
    if not found:
        return
    layout = layout_of(elf, found.get("ncclCommUserRank"), found.get("ncclCommCount"))
    taken: set[int] = set()
    for number, hook in enumerate(HOOKS):
        for name in (f"nccl{hook.name}", f"pnccl{hook.name}"):
            symbol = found.get(name)
            if symbol is None or symbol.value in taken:
                continue
            taken.add(symbol.value)
            yield plan_symbol(elf, symbol, rules, hook.program, hook.return_program, hook.cookie(number, layout))
