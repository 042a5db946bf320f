"""Where do programs hand messages to each other? At the functions of libzmq that send and receive one.

Python's wheels bring a library of their own, whose name has a hash in it: it is told by what it exports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..elf import ElfFile
from ..errors import ElfError
from .attach import PlannedProbe
from .sites import Cost, SiteRules, site_for_symbol


@dataclass(frozen=True, slots=True)
class MessageHook:
    """One function, and the programs at its entry and its return."""

    symbol: str
    program: str
    return_program: str


MESSAGE_HOOKS = (
    MessageHook("zmq_msg_send", "message_sent", "send_returned"),
    MessageHook("zmq_msg_recv", "message_awaited", "message_received"),
    MessageHook("zmq_send", "bytes_sent", "send_returned"),
    MessageHook("zmq_recv", "bytes_awaited", "bytes_received"),
)


def plan_messages(elf: ElfFile, rules: SiteRules) -> Iterator[PlannedProbe]:
    """Resolve the functions in one file; what cannot be probed has a reason."""
    exported = {s.name: s for s in elf.symbols()}
    for hook in MESSAGE_HOOKS:
        if (symbol := exported.get(hook.symbol)) is None:
            continue
        site = site_for_symbol(elf, symbol, rules)
        offset, cost, reason = None, Cost.NONE, site.reason
        if site.cost is not Cost.NONE:
            try:
                offset, cost = elf.to_offset(symbol.value + site.offset), site.cost
            except ElfError as e:
                reason = str(e)
        yield PlannedProbe(
            symbol.name, hook.program, hook.return_program, offset, site.instruction, site.offset, cost, 0, reason
        )
