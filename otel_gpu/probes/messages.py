"""Where do programs hand messages to each other? At the functions of libzmq that send and receive one.

Python's wheels bring a library of their own, whose name has a hash in it: it is told by what it exports.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..sandbox.elf import ElfFile
from ..signals.structs import Frozen
from .attach import PlannedProbe, plan_symbol
from .sites import SiteRules


class MessageHook(Frozen):
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
        if (symbol := exported.get(hook.symbol)) is not None:
            yield plan_symbol(elf, symbol, rules, hook.program, hook.return_program)
