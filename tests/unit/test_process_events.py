"""Records of the kernel's are read for what they are, whoever wrote what they quote."""

from __future__ import annotations

import struct

import pytest

from otel_gpu.discovery.events import Event, Executed, Exited, Mapped, decode

_MMAP2, _COMM, _EXIT, _EXEC, _CODE = 10, 3, 4, 1 << 13, 4
_WHEN = 1_000


def _mapping(pid: int) -> bytes:
    head = struct.pack("<IIQQQIIQQII", pid, pid, 0x1000, 0x2000, 0x3000, 8, 1, 77, 5, _CODE, 2)
    return head + b"/usr/lib/libcuda.so.1\0\0\0"


def _exec(pid: int) -> bytes:
    return struct.pack("<II", pid, pid) + b"python\0\0"


def _exit(pid: int) -> bytes:
    return struct.pack("<IIIIQ", pid, 1, pid, 1, _WHEN)


@pytest.mark.parametrize(
    "kind, misc, body, expected",
    [
        (_MMAP2, 0, _mapping, Mapped(9, 0x1000, 0x3000, 0x3000, (8, 1), 77, 5, b"/usr/lib/libcuda.so.1", _WHEN)),
        (_COMM, _EXEC, _exec, Executed(9, "python")),
        (_EXIT, 0, _exit, Exited(9)),
    ],
)
def test_a_process_of_another_pid_namespace_is_none_of_ours(kind: int, misc: int, body, expected: Event) -> None:
    assert decode(kind, misc, body(9), _WHEN) == expected
    # Which is how the kernel shows a process that has no number here.
    assert decode(kind, misc, body(0), _WHEN) is None
