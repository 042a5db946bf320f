"""Which functions of ROS 2 run callbacks, and by which do these take their messages? A table of symbols, and their sites.

The functions are those of rclcpp from Foxy to Rolling (rclcpp/executor.hpp), of rcl (rcl/subscription.h, service.h, client.h)
and of the middleware's interface (rmw/rmw.h). Callbacks throw, and no exception gets past a return probe: ends are seen at
`ret` instructions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from ...bpf.abi.requests import CallbackKind as KernelCallback
from ...probes.prologue import Cost
from ...probes.returns import ways_out
from ...probes.sites import SiteRules, site_for_symbol
from ...sandbox.elf import ElfFile, Symbol
from ...signals.structs import Frozen

_EXECUTOR = "_ZN6rclcpp8Executor"
_ANY = f"{_EXECUTOR}22execute_any_executableERNS_13AnyExecutableE"
_RUNNING = {
    _ANY: KernelCallback.ANY,
    f"{_EXECUTOR}20execute_subscriptionESt10shared_ptrINS_16SubscriptionBaseEE": KernelCallback.SUBSCRIPTION,
    f"{_EXECUTOR}13execute_timerESt10shared_ptrINS_9TimerBaseEE": KernelCallback.TIMER,
    # From Jazzy on.
    f"{_EXECUTOR}13execute_timerESt10shared_ptrINS_9TimerBaseEERKS1_IvE": KernelCallback.TIMER,
    f"{_EXECUTOR}15execute_serviceESt10shared_ptrINS_11ServiceBaseEE": KernelCallback.SERVICE,
    f"{_EXECUTOR}14execute_clientESt10shared_ptrINS_10ClientBaseEE": KernelCallback.CLIENT,
}
"""By mangled name: what the callback is for. `execute_any_executable` runs whatever is due, and calls the others."""
_WANTING = {
    "rmw_take": (KernelCallback.SUBSCRIPTION, 0),
    "rmw_take_with_info": (KernelCallback.SUBSCRIPTION, 3),
    "rmw_take_serialized_message": (KernelCallback.SUBSCRIPTION, 0),
    "rmw_take_serialized_message_with_info": (KernelCallback.SUBSCRIPTION, 3),
    "rmw_take_loaned_message": (KernelCallback.SUBSCRIPTION, 0),
    "rmw_take_loaned_message_with_info": (KernelCallback.SUBSCRIPTION, 3),
    "rmw_take_request": (KernelCallback.SERVICE, 1),
    "rmw_take_response": (KernelCallback.CLIENT, 1),
}
"""Functions that take a message: whose callback does that, and which argument says where to tell of the message."""
_TAKING = frozenset(
    {
        "rcl_take",
        "rcl_take_serialized_message",
        "rcl_take_loaned_message",
        "rcl_take_request_with_info",
        "rcl_take_response_with_info",
    }
)
"""Those that call them, and return whether there was one: a middleware's own go on in another function."""
_CATCHING = "__cxa_begin_catch"
"""What is called where an exception is caught."""
_CALLING_TIMERS = frozenset({"rcl_timer_call", "rcl_timer_call_with_info"})
_TRIGGERING = "rcl_trigger_guard_condition"
"""What rclpy calls before and after each callback."""
SYMBOLS = frozenset({*_RUNNING, *_WANTING, *_TAKING, _CATCHING, *_CALLING_TIMERS, _TRIGGERING})
_EXITS_SEEN = 1 << 8
_RCLCPP = b"librclcpp.so"
_RCLPY = (b"_rclpy_pybind11.", b"_rclpy.")
_LOOKED_AT = (_RCLCPP, b"librcl.so", b"librmw_", b"libstdc++.so", b"libc++abi.so")


class CallbackSite(Frozen):
    """Where a program of ebpf/inference/callbacks.bpf.c goes, and what it is told there."""

    program: str
    offset: int
    cookie: int = 0


def runs_callbacks(path: bytes) -> bool:
    """Tell whether who has this file mapped runs callbacks."""
    return os.path.basename(path).startswith(_RCLCPP)


def runs_python_callbacks(path: bytes) -> bool:
    """Tell the same of callbacks in Python."""
    return os.path.basename(path).startswith(_RCLPY)


def is_of_callbacks(path: bytes) -> bool:
    """Tell whether programs may go into this file, of a process that runs callbacks."""
    return os.path.basename(path).startswith(_LOOKED_AT)


def callback_sites(
    elf: ElfFile, symbols: Mapping[str, Symbol], rules: SiteRules, *, in_python: bool = False
) -> Iterator[CallbackSite]:
    """Yield the sites in one file, of whose symbols those of `SYMBOLS` are given; those for rclpy too, `in_python`."""
    if not rules.allow_single_step:
        return  # as probes on returns are
    yield from _running_sites(elf, symbols, rules)
    for name, (kind, message_at) in _WANTING.items():
        if (at := _entry(elf, symbols.get(name), rules)) is not None:
            yield CallbackSite("message_wanted", at, kind | message_at << 16)
    for name in sorted(_TAKING & symbols.keys()):
        for address in ways_out(elf, symbols[name]).returns:
            yield CallbackSite("message_taken", elf.to_offset(address))
    if (at := _entry(elf, symbols.get(_CATCHING), rules)) is not None:
        yield CallbackSite("exception_caught", at)
    if in_python:
        for name in sorted(_CALLING_TIMERS & symbols.keys()):
            for address in ways_out(elf, symbols[name]).returns:
                yield CallbackSite("timer_called", elf.to_offset(address))
        if (at := _entry(elf, symbols.get(_TRIGGERING), rules)) is not None:
            yield CallbackSite("guard_triggered", at)


def _running_sites(elf: ElfFile, symbols: Mapping[str, Symbol], rules: SiteRules) -> Iterator[CallbackSite]:
    for name, kind in _RUNNING.items():
        if (at := _entry(elf, symbols.get(name), rules)) is None:
            continue
        out = ways_out(elf, symbols[name])
        is_ended = out.are_all and bool(out.returns)
        # Without its end nothing may begin there; a function that goes on in the callback still says which kind it is.
        if name == _ANY and not is_ended:
            continue
        if is_ended:
            for address in out.returns:
                yield CallbackSite("callback_ends", elf.to_offset(address))
        yield CallbackSite("callback_begins", at, kind | (_EXITS_SEEN if is_ended else 0))


def _entry(elf: ElfFile, symbol: Symbol | None, rules: SiteRules) -> int | None:
    if symbol is None:
        return None
    site = site_for_symbol(elf, symbol, rules)
    return None if site.cost is Cost.NONE else elf.to_offset(symbol.value + site.offset)
