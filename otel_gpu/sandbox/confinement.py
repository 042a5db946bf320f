"""How does a process give up everything but what it computes on? Rights, files, network, and more than its share of the machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Collection, Iterator

from ..signals.structs import Frozen
from .seccomp import restrict

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 1, 4, 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = 9
_NOBODY = 65_534
_ON_FILES = 3
"""Of the four users, and groups, of a process: the one that counts for files."""
_MAX_DESCRIPTOR = (1 << 31) - 1
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Limits(Frozen):
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
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def limit(limits: Limits) -> None:
    """Bound what this process may take from here on."""
    address_space = _address_space() + limits.memory_bytes
    _lower(resource.RLIMIT_AS, address_space, address_space)
    _lower(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)
    _lower(resource.RLIMIT_CORE, 0, 0)
    if limits.nice:
        os.nice(limits.nice)


def _lower(limit: int, soft: int, hard: int) -> None:
    """Set a limit, or leave what is lower already: to raise it takes a right."""
    most = resource.getrlimit(limit)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(limit, (soft, hard))


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
    _set_capabilities((0, 0), (0, 0))
    _prctl(_PR_SET_DUMPABLE, 0)
    die_with_parent(parent)  # which a change of user undoes
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    restrict()


@contextlib.contextmanager
def rights_of(pid: int) -> Iterator[None]:
    """Have no other rights on files than a process has: those of its user and groups, and no capabilities.

    PermissionError where this process cannot become that user for a while, and may do more than that one.
    """
    uid, gid, groups = _credentials(pid)
    own = os.geteuid(), os.getegid(), os.getgroups()
    permitted = _capabilities()
    try:
        if own[0] != uid or not {own[1], *own[2]} <= {gid, *groups}:
            os.setgroups(groups)
            os.setegid(gid)
            os.seteuid(uid)
            # That process must not look into this one, which must end with its parent: a change of user undoes both.
            _prctl(_PR_SET_DUMPABLE, 0)
            _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        _set_capabilities((0, 0), permitted)
        yield
    finally:
        try:
            _set_capabilities(permitted, permitted)
            os.seteuid(own[0])
            os.setegid(own[1])
            if set(os.getgroups()) != set(own[2]):
                os.setgroups(own[2])
        except OSError:
            os._exit(1)  # what gives up its rights for good begins with all of them


def _credentials(pid: int) -> tuple[int, int, list[int]]:
    """Return the user, the group and the other groups as which a process opens files."""
    fields: dict[str, list[int]] = {}
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
        for line in status:
            name, _, values = line.partition(":")
            if name in ("Uid", "Gid", "Groups"):
                fields[name] = list(map(int, values.split()))
    return fields["Uid"][_ON_FILES], fields["Gid"][_ON_FILES], fields["Groups"]


def _capabilities() -> tuple[int, int]:
    """Return the permitted capabilities of this process, in two words."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    _checked("capget", header, sets)
    return sets[1], sets[4]


def _set_capabilities(effective: tuple[int, int], permitted: tuple[int, int]) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked("capset", header, (ctypes.c_uint32 * 6)(effective[0], permitted[0], 0, effective[1], permitted[1], 0))


def _checked(call: str, header: ctypes.Array[ctypes.c_uint32], sets: ctypes.Array[ctypes.c_uint32]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, call)(ctypes.byref(header), ctypes.byref(sets)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), call)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), f"prctl {option}")


def _address_space() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * _PAGE
