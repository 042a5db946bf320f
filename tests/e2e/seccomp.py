"""How are the system calls filtered that a unit restricts? As systemd does it, by libseccomp."""

from __future__ import annotations

import ctypes
import errno
import mmap
import socket
import stat
from collections.abc import Iterable, Sequence

from tests.e2e.service_unit import Service

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EQUAL, _MASKED_EQUAL, _NOT_EQUAL, _GREATER = 4, 7, 1, 6
_NO_NEW_PRIVS_ATTRIBUTE, _BAD_ARCH_ATTRIBUTE = 3, 2
_PERSONALITY_LINUX = 0
_NAMESPACES = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
_SCHED_RESET_ON_FORK, _SCHED_OTHER_CLASSES = 0x40000000, (0, 3, 5)


class _Comparison(ctypes.Structure):
    _fields_ = (("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def missing() -> str | None:
    """Return why nothing can be filtered here."""
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return "no libseccomp"
    return None


class _Filter:
    """One filter of the kernel's; all that are loaded hold."""

    def __init__(self, library: ctypes.CDLL, otherwise: int) -> None:
        self._library = library
        self._context = ctypes.c_void_p(library.seccomp_init(otherwise))

    def rule(self, action: int, call: str, *comparisons: tuple[int, int, int, int]) -> None:
        """Add a rule; a call that this machine does not have needs none."""
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            array = (_Comparison * len(comparisons))(*(_Comparison(*c) for c in comparisons))
            failed = self._library.seccomp_rule_add_array(self._context, action, number, len(comparisons), array)
            assert not failed, (call, failed)

    def load(self) -> None:
        # no_new_privs is set already, and a program of another architecture is refused.
        assert not self._library.seccomp_attr_set(self._context, _NO_NEW_PRIVS_ATTRIBUTE, 0)
        assert not self._library.seccomp_attr_set(self._context, _BAD_ARCH_ATTRIBUTE, _ERRNO | errno.EPERM)
        assert not self._library.seccomp_load(self._context)


def apply(service: Service) -> None:
    """Restrict this process, and what it becomes, as the unit says."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_void_p,
    )
    library.seccomp_attr_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    library.seccomp_load.argtypes = (ctypes.c_void_p,)
    for restriction, wanted, add in _RESTRICTIONS:
        if service.words(restriction) == [wanted]:
            denied = _Filter(library, _ALLOW)
            add(denied)
            denied.load()
    denied = _Filter(library, _ALLOW)
    _families(denied, [getattr(socket, name).value for name in service.words("RestrictAddressFamilies")])
    denied.load()
    _only(library, service.allowed_calls(), getattr(errno, service.one("SystemCallErrorNumber")))


def _only(library: ctypes.CDLL, calls: Iterable[str], code: int) -> None:
    allowed = _Filter(library, _ERRNO | code)
    for call in calls:
        allowed.rule(_ALLOW, call)
    allowed.load()


def _executable_memory(denied: _Filter) -> None:
    both = mmap.PROT_EXEC | mmap.PROT_WRITE
    refused = _ERRNO | errno.EPERM
    denied.rule(refused, "mmap", (2, _MASKED_EQUAL, both, both))
    denied.rule(refused, "mprotect", (2, _MASKED_EQUAL, mmap.PROT_EXEC, mmap.PROT_EXEC))
    denied.rule(refused, "pkey_mprotect", (2, _MASKED_EQUAL, mmap.PROT_EXEC, mmap.PROT_EXEC))
    denied.rule(refused, "shmat", (2, _MASKED_EQUAL, 0o100000, 0o100000))


def _namespaces(denied: _Filter) -> None:
    refused = _ERRNO | errno.EPERM
    for flag in (1 << n for n in range(32) if _NAMESPACES >> n & 1):
        denied.rule(refused, "clone", (0, _MASKED_EQUAL, flag, flag))
        denied.rule(refused, "unshare", (0, _MASKED_EQUAL, flag, flag))
    denied.rule(refused, "setns")
    # Its flags lie in memory, where no filter sees them: the C library goes back to clone.
    denied.rule(_ERRNO | errno.ENOSYS, "clone3")


def _personality(denied: _Filter) -> None:
    denied.rule(_ERRNO | errno.EPERM, "personality", (0, _NOT_EQUAL, _PERSONALITY_LINUX, 0))


def _realtime(denied: _Filter) -> None:
    for policy in (n for n in range(1, 7) if n not in _SCHED_OTHER_CLASSES):
        denied.rule(_ERRNO | errno.EPERM, "sched_setscheduler", (1, _MASKED_EQUAL, 0xFF, policy))
    denied.rule(_ERRNO | errno.EPERM, "sched_setattr")


def _set_id(denied: _Filter) -> None:
    for bit in (stat.S_ISUID, stat.S_ISGID):
        for call, argument in (
            ("chmod", 1),
            ("fchmod", 1),
            ("fchmodat", 2),
            ("mkdir", 1),
            ("mkdirat", 2),
            ("mknod", 1),
        ):
            denied.rule(_ERRNO | errno.EPERM, call, (argument, _MASKED_EQUAL, bit, bit))


def _families(denied: _Filter, allowed: Sequence[int]) -> None:
    refused = _ERRNO | errno.EAFNOSUPPORT
    for family in range(max(allowed)):
        if family not in allowed:
            denied.rule(refused, "socket", (0, _EQUAL, family, 0))
    denied.rule(refused, "socket", (0, _GREATER, max(allowed), 0))


_RESTRICTIONS = (
    ("MemoryDenyWriteExecute", "yes", _executable_memory),
    ("RestrictNamespaces", "yes", _namespaces),
    ("LockPersonality", "yes", _personality),
    ("RestrictRealtime", "yes", _realtime),
    ("RestrictSUIDSGID", "yes", _set_id),
)
