"""How is a program placed on code? Many sites by one uprobe_multi link, or one perf event a site."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from ctypes import c_uint32, c_uint64
from pathlib import Path

from ..errors import AttachError
from ..signals.structs import Frozen
from . import libbpf as lib
from .perf_event import IOC_ENABLE, IOC_SET_BPF, PerfEventAttributes, open_perf_event

LINK_CREATE = 28
BPF_PERF_EVENT = 41
BPF_TRACE_UPROBE_MULTI = 48
_MULTI_RETURN = 1
_NO_PERMISSION = "no permission"
_UPROBE_PMU = Path("/sys/bus/event_source/devices/uprobe")


class Placement(Frozen):
    """One site of a program: a file offset and the cookie that the program sees there."""

    offset: int
    cookie: int


class MultiLink(ctypes.Structure):
    """What BPF_LINK_CREATE takes for uprobe_multi."""

    _fields_ = (
        ("prog_fd", c_uint32),
        ("target_fd", c_uint32),
        ("attach_type", c_uint32),
        ("flags", c_uint32),
        ("path", c_uint64),
        ("offsets", c_uint64),
        ("ref_ctr_offsets", c_uint64),
        ("cookies", c_uint64),
        ("cnt", c_uint32),
        ("multi_flags", c_uint32),
        ("pid", c_uint32),
        ("pad", c_uint32),
    )


class _PerfLink(ctypes.Structure):
    _fields_ = (
        ("prog_fd", c_uint32),
        ("target_fd", c_uint32),
        ("attach_type", c_uint32),
        ("flags", c_uint32),
        ("cookie", c_uint64),
    )


class Link:
    """Placed probes; closing takes them away."""

    def __init__(self, fds: Sequence[int]) -> None:
        self._fds = list(fds)

    def close(self) -> None:
        """Detach; idempotent."""
        while self._fds:
            os.close(self._fds.pop())


def attach_multi(program: int, path: str, sites: Sequence[Placement], *, at_return: bool, pid: int = 0) -> Link:
    """Place a program on many sites of one file with one link (kernel 6.6), in one process or in all.

    AttachError with the reason.
    """
    offsets = (c_uint64 * len(sites))(*(s.offset for s in sites))
    cookies = (c_uint64 * len(sites))(*(s.cookie for s in sites))
    name = ctypes.create_string_buffer(os.fsencode(path))
    request = MultiLink(
        prog_fd=program,
        attach_type=BPF_TRACE_UPROBE_MULTI,
        path=ctypes.addressof(name),
        offsets=ctypes.addressof(offsets),
        cookies=ctypes.addressof(cookies),
        cnt=len(sites),
        multi_flags=_MULTI_RETURN if at_return else 0,
        pid=pid,
    )
    try:
        return Link([lib.bpf(LINK_CREATE, request)])
    except OSError as e:
        raise _refused(path, sites[0].offset, e) from e


def attach_perf(program: int, path: str, site: Placement, *, at_return: bool, cookies: bool, pid: int = 0) -> Link:
    """Place a program on one site with a perf event; without `cookies` the program must hold its own."""
    fd = open_uprobe(path, site.offset, at_return=at_return, pid=pid)
    link = Link([fd])
    try:
        if cookies:
            link = Link([lib.bpf(LINK_CREATE, _PerfLink(program, fd, BPF_PERF_EVENT, 0, site.cookie)), fd])
        else:
            import fcntl

            fcntl.ioctl(fd, IOC_SET_BPF, program)
            fcntl.ioctl(fd, IOC_ENABLE, 0)
    except OSError as e:
        link.close()
        raise _refused(path, site.offset, e) from e
    return link


def open_uprobe(path: str, offset: int, *, at_return: bool, pid: int = 0) -> int:
    """Open the perf event of a uprobe in one process, or in all, and return its descriptor; AttachError with the reason."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    event = PerfEventAttributes(
        type=int((_UPROBE_PMU / "type").read_text()),
        config=1 << _return_bit() if at_return else 0,
        config1=ctypes.addressof(name),
        config2=offset,
    )
    try:
        return open_perf_event(event, -1, pid) if pid else open_perf_event(event, 0)
    except OSError as e:
        raise _refused(path, offset, e) from e


def _return_bit() -> int:
    text = (_UPROBE_PMU / "format" / "retprobe").read_text().strip()
    return int(text.removeprefix("config:"))


def _refused(path: str, offset: int, e: OSError) -> AttachError:
    reason = {
        errno.ENOENT: "the file is gone",
        errno.ESRCH: "the process is gone",
        errno.EPERM: _NO_PERMISSION,
        errno.EACCES: _NO_PERMISSION,
        errno.EOPNOTSUPP: "the instruction cannot be probed",
        errno.ENOTSUPP if hasattr(errno, "ENOTSUPP") else 524: "the instruction cannot be probed",
    }.get(e.errno or 0, e.strerror or str(e))
    return AttachError(f"cannot probe {path} at offset {offset:#x}: {reason}", refused=reason == _NO_PERMISSION)
