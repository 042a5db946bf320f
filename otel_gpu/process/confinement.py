"""How does a process give up everything but what it computes on? Rights, files, network, and more than its share of the machine."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Collection
from dataclasses import dataclass

from .seccomp import restrict

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 1, 4, 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_NOBODY = 65_534
_MAX_DESCRIPTOR = (1 << 31) - 1
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one piece of work may take; whatever takes more is ended, and costs nobody else."""

    answer_s: float = 5.0
    """Wall time until the first answer, and from one answer to the next."""
    cpu_s: int = 10
    """CPU time in all."""
    memory_bytes: int = 1 << 30
    """Address space beyond what the worker has when it begins."""
    answer_bytes: int = 256 << 20
    """Of all answers together."""
    nice: int = 0


USUAL = Limits()


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(1)


def limit(limits: Limits) -> None:
    """Bound what this process may take from here on."""
    address_space = _address_space() + limits.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.nice:
        os.nice(limits.nice)


def keep_only(descriptors: Collection[int]) -> None:
    """Close every other descriptor than the standard streams and these."""
    first = 3
    for kept in sorted(d for d in descriptors if d >= first):
        os.closerange(first, kept)
        first = kept + 1
    # Above the last one nothing else has been opened than what was inherited: one call closes it all.
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "close_range") or libc.close_range(first, _MAX_DESCRIPTOR, 0):
        os.closerange(first, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def confine(parent: int) -> None:
    """Give up, for good, all rights and all system calls but those that compute on what is open; end with the parent."""
    if os.geteuid() == 0:
        # Without rights root still owns root's files and may signal root's processes; where it cannot become another
        # user, the filter below is what stands between.
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        except PermissionError:
            pass
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _drop_capabilities()
    _prctl(_PR_SET_DUMPABLE, 0)
    die_with_parent(parent)  # which a change of user undoes
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    restrict()


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(ctypes.byref(header), ctypes.byref(nothing)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "capset")


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), f"prctl {option}")


def _address_space() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * _PAGE
