"""Which capabilities do this process's threads hold, and how does it let go of those that it no longer needs?

Linux keeps capabilities by thread, and a thread can change only its own; a new one has those of whoever started it. So a
command lets go before it starts threads (`limit`), and what only its beginning needs is left to one thread of its own,
which does what it is given by `perform` and ends by `settle`. In a program that never calls `limit`, which uses
this package as a library, `perform` is a plain call and every right stays as it is.
"""

from __future__ import annotations

import ctypes
import enum
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_VERSION_3 = 0x20080522
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 24, 38, 47
_AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 2, 4
_LAST = 63
"""No kernel has more capabilities than a set has bits."""

_libc = ctypes.CDLL(None, use_errno=True)


class Capability(enum.IntEnum):
    """Those that matter here, as linux/capability.h numbers them."""

    CAP_CHOWN = 0
    CAP_DAC_OVERRIDE = 1
    CAP_DAC_READ_SEARCH = 2
    CAP_KILL = 5
    CAP_SETGID = 6
    CAP_SETUID = 7
    CAP_SETPCAP = 8
    CAP_NET_BIND_SERVICE = 10
    CAP_SYS_PTRACE = 19
    CAP_SYS_ADMIN = 21
    CAP_SYS_RESOURCE = 24
    CAP_PERFMON = 38
    CAP_BPF = 39
    CAP_CHECKPOINT_RESTORE = 40


class _Sets(NamedTuple):
    """A thread's capabilities, as bits."""

    effective: int
    permitted: int
    inheritable: int


class _Keeper:
    """The thread that holds what only the beginning needs."""

    def __init__(self, rights: Collection[Capability], passed_on: Collection[Capability]) -> None:
        self._thread = ThreadPoolExecutor(1, "otel-gpu-rights")
        self._id = 0
        self._id = self.perform(threading.get_ident)
        self.perform(_reduce, rights, passed_on)

    def perform(self, function: Callable[..., _T], *arguments: object) -> _T:
        if threading.get_ident() == self._id:
            return function(*arguments)
        return self._thread.submit(function, *arguments).result()

    def end(self) -> None:
        self._thread.shutdown()


_keeper: _Keeper | None = None


def held() -> frozenset[Capability]:
    """Return what the calling thread can use now."""
    return frozenset(c for c in Capability if _get().effective >> c & 1)


def take_up() -> None:
    """Make what the calling thread may use what it uses.

    An interpreter whose file has capabilities that are not effective starts with whatever part of them its container grants; one
    whose are could not even be started without all of them.
    """
    sets = _get()
    if sets.permitted & ~sets.effective:
        _set(sets._replace(effective=sets.permitted))


def limit(kept: Collection[Capability], until_settled: Collection[Capability] = ()) -> None:
    """Let go, for good, of everything but `kept`; of `until_settled` only when `settle` is called.

    To be called once, by the only thread of the process. Programs that are started from here on have `kept` at most.
    """
    global _keeper  # noqa: PLW0603 - there is one process
    if len(os.listdir("/proc/self/task")) > 1:
        _log.warning(
            "a thread was started before otel-gpu let go of rights, and keeps them; see what Python loads by itself"
        )
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _bound(kept)
    if set(until_settled) & held() - set(kept):
        _keeper = _Keeper({*kept, *until_settled}, kept)
    _reduce(kept, kept)


def perform(function: Callable[..., _T], *arguments: object) -> _T:
    """Call a function with the rights that are left until `settle`. It must start no thread: that would keep them."""
    return function(*arguments) if _keeper is None else _keeper.perform(function, *arguments)


def settle(still: Collection[Capability] = ()) -> None:
    """Let go of what only the beginning needed; `perform` still has those of `still`. Idempotent."""
    global _keeper  # noqa: PLW0603 - as above
    if _keeper is not None and still:
        _keeper.perform(_reduce, held() | {*still}, held())
    elif _keeper is not None:
        _keeper.end()
        _keeper = None


@contextmanager
def without(*capabilities: Capability) -> Iterator[None]:
    """Do without these for a moment, in this thread: to find out whether they are needed."""
    sets = _get()
    _set(sets._replace(effective=sets.effective & ~_bits(capabilities)))
    try:
        yield
    finally:
        _set(sets)


def _reduce(kept: Collection[Capability], passed_on: Collection[Capability]) -> None:
    """Leave the calling thread with no more than `kept`, and programs that it starts with no more than `passed_on`."""
    permitted = _get().permitted & _bits(kept)
    inheritable = permitted & _bits(passed_on)
    _prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    _set(_Sets(permitted, permitted, inheritable))
    for capability in passed_on:
        if inheritable >> capability & 1:
            _prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, capability)


def _bound(kept: Collection[Capability]) -> None:
    """Take from what root's programs would be given anew, where this thread may; no_new_privs holds without it."""
    if Capability.CAP_SETPCAP not in held():
        return
    for capability in range(_LAST):
        if capability not in kept:
            try:
                _prctl(_PR_CAPBSET_DROP, capability)
            except OSError:
                return  # behind the last one that this kernel knows


def _bits(capabilities: Collection[Capability]) -> int:
    return sum(1 << c for c in capabilities)


def _get() -> _Sets:
    data = _capabilities("capget", (ctypes.c_uint32 * 6)())
    low, high = data[:3], data[3:]
    return _Sets(*(a | b << 32 for a, b in zip(low, high)))


def _set(sets: _Sets) -> None:
    words = [*(s & 0xFFFFFFFF for s in sets), *(s >> 32 for s in sets)]
    _capabilities("capset", (ctypes.c_uint32 * 6)(*words))


def _capabilities(function: str, data: ctypes.Array[ctypes.c_uint32]) -> list[int]:
    """Call capget or capset for the calling thread."""
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    if getattr(_libc, function)(ctypes.byref(header), ctypes.byref(data)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), function)
    return list(data)


def _prctl(option: int, *values: int) -> None:
    words = [ctypes.c_ulong(v) for v in (*values, 0, 0, 0, 0)[:4]]
    if _libc.prctl(option, *words):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "prctl")
