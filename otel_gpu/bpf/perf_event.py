"""How is a perf event opened? The start of struct perf_event_attr, as include/uapi/linux/perf_event.h lays it out."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator
from ctypes import c_int32, c_uint32, c_uint64

from ..runtime.online_cpus import online_cpus
from ..runtime.privileges import perform
from . import libbpf as lib

SOFTWARE, CPU_CLOCK, DUMMY = 1, 0, 9
PARANOID = "/proc/sys/kernel/perf_event_paranoid"
_HIGHEST = 2
"""Of the kernel's own levels; those above are distributions'."""
IOC_ENABLE, IOC_SET_BPF = 0x2400, 0x40042408
_CLOEXEC = 8


class PerfEventAttributes(ctypes.Structure):
    """What kind of event; what is not set is 0."""

    _fields_ = (
        ("type", c_uint32),
        ("size", c_uint32),
        ("config", c_uint64),
        ("period", c_uint64),
        ("sample_type", c_uint64),
        ("read_format", c_uint64),
        ("flags", c_uint64),
        ("wakeup", c_uint32),
        ("breakpoint_type", c_uint32),
        ("config1", c_uint64),
        ("config2", c_uint64),
        ("branch_sample_type", c_uint64),
        ("sample_regs_user", c_uint64),
        ("sample_stack_user", c_uint32),
        ("clock", c_int32),
        ("more", c_uint64 * 4),
    )


def open_perf_event(attributes: PerfEventAttributes, cpu: int, pid: int = -1) -> int:
    """Open an event of all processes on one CPU, or of one on all, and return its descriptor; OSError when refused."""
    attributes.size = ctypes.sizeof(PerfEventAttributes)
    return perform(
        lib.syscall,
        lib.SYS_PERF_EVENT_OPEN[lib.machine()],
        ctypes.byref(attributes),
        c_int32(pid),
        c_int32(cpu),
        c_int32(-1),
        c_uint64(_CLOEXEC),
    )


def open_on_each_cpu(attributes: PerfEventAttributes) -> Iterator[int]:
    """Open an event of all processes on every CPU that is online, and yield the descriptors; OSError when refused."""
    for cpu in online_cpus():
        try:
            yield open_perf_event(attributes, cpu)
        except OSError as e:
            if e.errno != errno.ENODEV:  # it has gone offline since
                raise


def right() -> str:
    """Say which right an event that is refused takes on this kernel."""
    try:
        with open(PARANOID) as file:
            level = int(file.read())
    except (OSError, ValueError):
        return "run a kernel with CONFIG_PERF_EVENTS=y"
    if level > _HIGHEST:
        return f"run as root or with CAP_SYS_ADMIN, or set kernel.perf_event_paranoid to 2 (it is {level}) and give CAP_PERFMON"
    return "run as root or with CAP_PERFMON"
