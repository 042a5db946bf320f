"""Which probes go where in one library, and are they there? Plans first, then places them.

A plan is what the table says, resolved in one file: symbol, site, cost, or why not. `otel-gpu inspect` shows
it; the attacher places it, the cheapest links first, and records what the kernel refused.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from ..bpf.abi.cookies import COOKIE_LIBRARY_BIT
from ..bpf.links import Link, Placement
from ..errors import AttachError, ElfError
from ..runtime.shortage import is_shortage
from ..sandbox.elf import ElfFile, Symbol
from ..signals.structs import Frozen
from ..text import escaped
from .hook import Hook
from .sites import Cost, SiteRules, site_for_symbol
from .table import function_number

_log = logging.getLogger(__name__)
_ENDS = "the agent ends"


class PlannedProbe(Frozen):
    """One function of one file: where its probe goes, or why it has none."""

    symbol: str
    program: str
    return_program: str | None
    offset: int | None
    """File offset of the probe; None when it cannot be placed."""
    instruction: str
    site: int
    """Bytes between the function's entry and the probe."""
    cost: Cost
    cookie: int
    reason: str | None = None
    """Why it cannot be placed, or why not at a cheaper place."""

    @property
    def placeable(self) -> bool:
        return self.offset is not None

    def of_library(self, number: int) -> PlannedProbe:
        """Return this probe with the library's number in its cookie."""
        return dataclasses.replace(self, cookie=self.cookie | number << COOKIE_LIBRARY_BIT)

    def left_out(self, reason: str) -> PlannedProbe:
        """Return this probe as one that is not placed."""
        return dataclasses.replace(self, offset=None, cost=Cost.NONE, reason=reason)


class Linker(Protocol):
    """Places programs; made for the kernel's abilities by the receiver's object."""

    @property
    def descriptors_per_site(self) -> int:
        """How many descriptors a probe takes; 0 where all sites of a program together take one."""

    def place(self, program: str, path: str, sites: Sequence[Placement], *, at_return: bool) -> Link: ...


def plan(elf: ElfFile, hooks: Iterable[Hook], rules: SiteRules) -> list[PlannedProbe]:
    """Resolve the table in one file. Aliases of one address are planned once."""
    exported = {s.name: s for s in elf.symbols()}
    taken: dict[int, str] = {}
    probes = []
    for hook in hooks:
        number = function_number(hook)
        for name, per_thread in hook.symbols():
            symbol = exported.get(name)
            if symbol is None:
                continue
            cookie = hook.cookie(number, per_thread=per_thread)
            probe = plan_symbol(elf, symbol, rules, hook.program, hook.return_program, cookie)
            if probe.offset is not None:
                first = taken.setdefault(probe.offset, name)
                if first != name:
                    probe = dataclasses.replace(probe, offset=None, cost=Cost.NONE, reason=f"the same code as {first}")
            probes.append(probe)
    return probes


def plan_symbol(
    elf: ElfFile, symbol: Symbol, rules: SiteRules, program: str, return_program: str | None, cookie: int = 0
) -> PlannedProbe:
    """Find the site of one function; a probe that cannot be placed has the reason."""
    site = site_for_symbol(elf, symbol, rules)
    offset, cost, reason = None, Cost.NONE, site.reason
    if site.cost is not Cost.NONE:
        try:
            offset, cost = elf.to_offset(symbol.value + site.offset), site.cost
        except ElfError as e:
            reason = str(e)
    return PlannedProbe(
        symbol.name, program, return_program, offset, site.instruction, site.offset, cost, cookie, reason
    )


def descriptors_for(probes: Iterable[PlannedProbe], linker: Linker) -> int:
    """Return how many descriptors the probes of a library take."""
    placed = [p for p in probes if p.placeable]
    programs = {p.program for p in placed} | {p.return_program for p in placed if p.return_program}
    sites = len(placed) + sum(p.return_program is not None for p in placed)
    return linker.descriptors_per_site * sites or len(programs)


class AttachedLibrary:
    """The probes of one library. Closing it takes them away."""

    def __init__(
        self,
        path: str,
        probes: Sequence[PlannedProbe],
        linker: Linker,
        opener: str,
        is_told_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Place what can be placed; what the kernel refuses is in `failures`, by symbol.

        AttachError where descriptors or memory do not suffice: nothing is placed then. `is_told_to_stop` is asked before
        each program is placed: by perf events on a busy host that takes seconds.
        """
        self.path = path
        self.failures: dict[str, str] = {}
        self._links: list[Link] = []
        self._linker = linker
        self._opener = opener
        self.attached = 0
        by_program: dict[tuple[str, bool], list[PlannedProbe]] = defaultdict(list)
        for probe in probes:
            if not probe.placeable:
                self.failures[probe.symbol] = probe.reason or "it has no site"
                continue
            by_program[probe.program, False].append(probe)
            if probe.return_program:
                by_program[probe.return_program, True].append(probe)
        # Launches come first of all, for they cannot be waited for, then names, which are asked for once.
        # Returns before entries: an entry without its return would leave a call waiting for ever.
        for (program, at_return), group in sorted(
            by_program.items(),
            key=lambda item: (not item[0][0].startswith("launch"), not item[0][0].startswith("name"), not item[0][1]),
        ):
            if is_told_to_stop():
                self.failures |= {p.symbol: _ENDS for p in group}
                continue
            try:
                self._place(program, group, at_return)
            except AttachError:
                self.close()
                raise
        self.attached = sum(p.placeable and p.symbol not in self.failures for p in probes)
        self.sites = frozenset(p.offset for p in probes if p.offset is not None and p.symbol not in self.failures)
        """File offsets of the probes that are in place."""
        self.placed_ns = time.monotonic_ns()
        """Since when they are."""

    def close(self) -> None:
        """Detach; idempotent.

        Each link waits for a grace period of the kernel: side by side they wait for the same one.
        """
        links, self._links = self._links, []
        if links:
            with ThreadPoolExecutor(len(links)) as pool:
                list(pool.map(lambda link: link.close(), links))

    def _place(self, program: str, probes: Sequence[PlannedProbe], at_return: bool) -> None:
        sites = [Placement(p.offset, p.cookie) for p in probes if p.offset is not None]
        try:
            self._links.append(self._linker.place(program, self._opener, sites, at_return=at_return))
        except AttachError as e:
            if is_shortage(e):
                raise
            if len(probes) == 1 or e.refused or not os.path.exists(self._opener):
                self.failures |= {p.symbol: str(e) for p in probes}
                _log.warning("%d probes of %s are not placed: %s", len(probes), escaped(self.path), e)
                return
            # One bad site refuses the whole link: find it by halves.
            middle = len(probes) // 2
            self._place(program, probes[:middle], at_return)
            self._place(program, probes[middle:], at_return)
