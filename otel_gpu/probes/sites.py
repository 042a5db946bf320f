"""At which instruction of a function does a probe cost least and still see the call as it was made?

A probe on an instruction that the kernel emulates costs a thirteenth of one on an instruction that it single-steps. So
the search starts at the entry and walks over instructions that leave arguments, stack and return address alone, to the
first cheap one; a probe fires before its instruction runs. Where there is none, the entry it is.
"""

from __future__ import annotations

import functools
import platform
from typing import Literal

from ..sandbox.elf import EM_AARCH64, EM_X86_64, PF_X, PT_LOAD, STT_GNU_IFUNC, ElfFile, Symbol
from ..signals.structs import Frozen
from .prologue import Cost, Prologue, Step
from .prologue_arm64 import Arm64Prologue
from .prologue_x86 import X86Prologue

__all__ = ["Cost", "Site", "SiteRules", "find_site", "has_fast_nops", "site_for_symbol"]

Policy = Literal["fast", "entry"]

_LOOKED_AT = 4096
_MAX_WALK = 64
_KERNEL_TYPES = "/sys/kernel/btf/vmlinux"


class Site(Frozen):
    """Where to put a probe: bytes behind the function's entry, and what a hit costs. `reason` says why not, or why not cheaper."""

    offset: int
    instruction: str
    cost: Cost
    reason: str | None = None


class SiteRules(Frozen):
    """How the instructions are chosen that probes sit on."""

    policy: Policy = "fast"
    allow_single_step: bool = True
    fast_nops: bool = False
    """As `has_fast_nops` says of the kernel."""

    @classmethod
    def here(cls, policy: Policy = "fast", *, allow_single_step: bool = True) -> SiteRules:
        """Return the rules for this kernel."""
        return cls(policy, allow_single_step, has_fast_nops())


def find_site(
    code: bytes,
    vaddr: int,
    machine: int,
    *,
    allow_single_step: bool = True,
    policy: Policy = "fast",
    fast_nops: bool = False,
) -> Site:
    """Choose the site in the function whose `code` begins at link-time address `vaddr`; `machine` as in the ELF header.

    `fast_nops` says that the kernel handles nops without single-stepping (see has_fast_nops).
    """
    code = code[:_LOOKED_AT]
    prologue = _prologue(machine, fast_nops)
    if prologue is None:
        return Site(0, "", Cost.NONE, f"machine {machine} is neither x86-64 nor aarch64")
    entry = next(prologue.steps(code[:_MAX_WALK], vaddr), None)
    if entry is None:
        return Site(0, "", Cost.NONE, "the first instruction cannot be decoded")
    why_not_cheaper = None
    if policy == "fast" and not entry.cost.is_fast:
        offset, step = _first_fast(prologue, code, vaddr)
        if step is None:
            why_not_cheaper = "no cheaper instruction before arguments or stack change"
        elif prologue.is_branch_target(code, 1, offset):
            why_not_cheaper = f"a branch leads back before +{offset}, so a probe there could fire twice in a call"
        else:
            return Site(offset, step.text, step.cost)
    if entry.cost is Cost.SINGLE_STEPPED and not allow_single_step:
        reason = why_not_cheaper or "the first instruction would be single-stepped"
        return Site(0, entry.text, Cost.NONE, f"single-stepping is not allowed, and {reason}")
    if entry.cost is Cost.NONE:
        return Site(0, entry.text, Cost.NONE, entry.reason)
    return Site(0, entry.text, entry.cost, why_not_cheaper)


def site_for_symbol(elf: ElfFile, symbol: Symbol, rules: SiteRules) -> Site:
    """Choose the site for a function of an ELF file."""
    if symbol.type == STT_GNU_IFUNC:
        return Site(0, "", Cost.NONE, "the symbol is a resolver that runs once, not the function")
    for segment in elf.segments:
        end = segment.vaddr + segment.file_size
        if segment.type == PT_LOAD and segment.flags & PF_X and segment.vaddr <= symbol.value < end:
            size = min(symbol.size or _LOOKED_AT, _LOOKED_AT, end - symbol.value)
            offset = symbol.value - segment.vaddr + segment.offset
            size = min(size, elf.size - offset)
            code = elf.read(offset, max(size, 0)) if size > 0 else b""
            return find_site(
                code,
                symbol.value,
                elf.machine,
                allow_single_step=rules.allow_single_step,
                policy=rules.policy,
                fast_nops=rules.fast_nops,
            )
    return Site(0, "", Cost.NONE, f"address {symbol.value:#x} is in no executable segment")


@functools.cache
def has_fast_nops() -> bool:
    """Say whether this kernel handles nops under a probe without single-stepping, by the function that does it."""
    handler = b"\0simulate_nop\0" if platform.machine() == "aarch64" else b"\0arch_uprobe_optimize\0"
    try:
        with open(_KERNEL_TYPES, "rb") as types:
            return handler in types.read()
    except OSError:
        return False


@functools.cache
def _prologue(machine: int, fast_nops: bool) -> Prologue | None:
    if machine == EM_X86_64:
        return X86Prologue(long_nops=fast_nops)
    if machine == EM_AARCH64:
        return Arm64Prologue(fast_nops=fast_nops)
    return None


def _first_fast(prologue: Prologue, code: bytes, vaddr: int) -> tuple[int, Step | None]:
    offset = 0
    for step in prologue.steps(code[:_MAX_WALK], vaddr):
        if step.cost.is_fast:
            return offset, step
        if not step.passable:
            break
        offset += step.size
    return 0, None
