"""Which system calls may a process that reads what strangers made still make? A filter that refuses all others.

What is left computes on memory and on descriptors that are open: it opens nothing, connects to nothing, starts nothing.
"""

from __future__ import annotations

import ctypes
import platform
import struct

from ..errors import UnsupportedKernelError

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM = 1
# struct seccomp_data: the number at 0, the architecture at 4, arguments of 8 bytes from 16 on.
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_PROT_EXEC = 4

# linux/bpf_common.h: what the filter's instructions are made of.
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_INSTRUCTION = struct.Struct("<HBBI")

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""linux/audit.h: AUDIT_ARCH_*."""

_CALLS = {
    # name: (number on x86-64, number on aarch64)
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "getpid": (39, 172),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "exit": (60, 93),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "futex": (202, 98),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}
_WITHOUT_EXECUTION = {"mmap": (9, 222), "mprotect": (10, 226)}
"""Allowed unless they would make memory executable: their third argument says so."""
_PROTECTION_ARGUMENT = 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def restrict() -> None:
    """Refuse, for good, every system call that computing does not need, with EPERM.

    The caller has set no_new_privs. UnsupportedKernelError on other machines and where the kernel has no filters.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise UnsupportedKernelError(f"system calls cannot be filtered on {machine}")
    code = ctypes.create_string_buffer(_filter(machine))
    program = _Program((len(code) - 1) // _INSTRUCTION.size, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0):
        raise UnsupportedKernelError("this kernel filters no system calls (CONFIG_SECCOMP_FILTER)")


def _filter(machine: str) -> bytes:
    column = list(_ARCHITECTURES).index(machine)
    code = [
        _INSTRUCTION.pack(_LOAD, 0, 0, _ARCHITECTURE_AT),
        _INSTRUCTION.pack(_JUMP_IF_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        _INSTRUCTION.pack(_RETURN, 0, 0, _KILL_PROCESS),
        _INSTRUCTION.pack(_LOAD, 0, 0, _NUMBER_AT),
    ]
    for numbers in _CALLS.values():
        code.append(_INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, 1, numbers[column]))
        code.append(_INSTRUCTION.pack(_RETURN, 0, 0, _ALLOW))
    for numbers in _WITHOUT_EXECUTION.values():
        code.append(_INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, 4, numbers[column]))
        code.append(_INSTRUCTION.pack(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * _PROTECTION_ARGUMENT))
        code.append(_INSTRUCTION.pack(_JUMP_IF_ANY_BIT, 1, 0, _PROT_EXEC))
        code.append(_INSTRUCTION.pack(_RETURN, 0, 0, _ALLOW))
        code.append(_INSTRUCTION.pack(_RETURN, 0, 0, _ERRNO | _EPERM))
    code.append(_INSTRUCTION.pack(_RETURN, 0, 0, _ERRNO | _EPERM))
    return b"".join(code)
