"""What can this kernel do? Each feature is probed, never inferred from a version."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable
from ctypes import c_char, c_uint32, c_uint64
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AttachError
from ..runtime.privileges import Capability, perform, without
from ..signals.structs import Frozen
from . import libbpf as lib
from .links import BPF_TRACE_UPROBE_MULTI, LINK_CREATE, MultiLink, open_uprobe
from .perf_event import DUMMY, SOFTWARE, PerfEventAttributes, open_perf_event

if TYPE_CHECKING:
    from .function_types import FunctionTypes  # which costs NumPy

_MAP_CREATE, _MAP_LOOKUP, _PROG_LOAD = 0, 1, 5
_HASH, _RINGBUF = 1, 27
_NO_PREALLOC = 1
_ENTRY_BYTES = 1024
_KPROBE, _SOCKET_FILTER = 2, 1
_COOKIE_HELPER, _LOOP_HELPER = 174, 181
_TYPES, _SOCKET_MESSAGES = Path("/sys/kernel/btf/vmlinux"), b"\0btf_trace_sock_recv_length\0"
_NO_DESCRIPTOR = 0xFFFFFFFF
_EXIT = bytes.fromhex("b7000000000000009500000000000000")


class Features(Frozen):
    """What the running kernel offers, with the version that brought it."""

    permitted: bool
    """This process may load programs at all; the other answers mean nothing when it may not."""
    btf: bool
    """/sys/kernel/btf/vmlinux, needed by every program."""
    uprobes: bool
    """The perf uprobe event source (4.17)."""
    ring_buffer: bool
    """BPF_MAP_TYPE_RINGBUF (5.8)."""
    attach_cookie: bool
    """bpf_get_attach_cookie (5.15); without it a program is loaded once for each site."""
    bpf_loop: bool
    """bpf_loop (5.17), needed for stacks."""
    uprobe_multi: bool
    """Links over many sites (6.6); without them attaching and detaching is slower."""
    perf_uprobe: bool
    """This process may place a probe by a perf event."""
    perf_uprobe_needs_admin: bool
    """For that CAP_PERFMON is not enough: kernels with the fix of CVE-2025-38466 want CAP_SYS_ADMIN."""
    perf_events_need_admin: bool
    """It is for no perf event: Debian's kernels, for one, want CAP_SYS_ADMIN at a perf_event_paranoid above 2."""
    open_for_all: bool
    """What is loaded is used without rights, by whoever has it open (5.19)."""


class _MapCreate(ctypes.Structure):
    _fields_ = (
        ("type", c_uint32),
        ("key", c_uint32),
        ("value", c_uint32),
        ("entries", c_uint32),
        ("flags", c_uint32),
        ("more", c_uint32 * 11),
    )


class _MapLookup(ctypes.Structure):
    _fields_ = (("fd", c_uint32), ("pad", c_uint32), ("key", c_uint64), ("value", c_uint64), ("flags", c_uint64))


class _ProgLoad(ctypes.Structure):
    _fields_ = (
        ("type", c_uint32),
        ("insn_cnt", c_uint32),
        ("insns", c_uint64),
        ("license", c_uint64),
        ("log_level", c_uint32),
        ("log_size", c_uint32),
        ("log_buf", c_uint64),
        ("kern_version", c_uint32),
        ("prog_flags", c_uint32),
        ("name", c_char * 16),
        ("ifindex", c_uint32),
        ("expected_attach_type", c_uint32),
        ("btf", c_uint32),
        ("function_bytes", c_uint32),
        ("functions", c_uint64),
        ("function_count", c_uint32),
    )


@functools.cache
def probe() -> Features:
    """Ask the kernel; cached, since it does not change."""
    return Features(
        permitted=_loads(_EXIT),
        btf=_TYPES.exists(),
        uprobes=Path("/sys/bus/event_source/devices/uprobe/type").exists(),
        ring_buffer=_map(_RINGBUF, 0, 0, os.sysconf("SC_PAGE_SIZE")),
        attach_cookie=_loads(_call(_COOKIE_HELPER)),
        bpf_loop=_knows_helper(_LOOP_HELPER),
        uprobe_multi=_uprobe_multi(),
        perf_uprobe=_perf_uprobe(),
        perf_uprobe_needs_admin=_needs_admin(_perf_uprobe),
        perf_events_need_admin=_needs_admin(_perf_event),
        open_for_all=_open_for_all(),
    )


@functools.cache
def tells_of_socket_messages() -> bool:
    """Say whether this kernel has the tracepoints of what is received and sent on sockets (6.3), which requests need.

    Its types are read whole for that: who follows no requests does not ask.
    """
    try:
        return _SOCKET_MESSAGES in _TYPES.read_bytes()
    except OSError:
        return False


def load_program(
    instructions: bytes, *, attach_type: int = 0, name: bytes = b"", types: FunctionTypes | None = None, log: int = 0
) -> int:
    """Load a uprobe program from raw instructions and return its descriptor; OSError when refused."""
    code = ctypes.create_string_buffer(instructions, len(instructions))
    license_text = ctypes.create_string_buffer(b"Dual BSD/GPL")
    log_buffer = ctypes.create_string_buffer(log or 1)
    request = _ProgLoad(
        type=_KPROBE,
        insn_cnt=len(instructions) // 8,
        insns=ctypes.addressof(code),
        license=ctypes.addressof(license_text),
        log_level=1 if log else 0,
        log_size=log,
        log_buf=ctypes.addressof(log_buffer) if log else 0,
        name=name[:15],
        expected_attach_type=attach_type,
    )
    if types is not None:
        request.btf, request.functions = types.btf, types.functions.ctypes.data
        request.function_bytes, request.function_count = types.functions.itemsize, len(types.functions)
    try:
        return perform(lib.bpf, _PROG_LOAD, request)
    except OSError as e:
        if log:
            raise OSError(e.errno, log_buffer.value.decode("utf-8", "replace")) from e
        raise


def empty_program(attach_type: int = 0) -> int:
    """Load a program that does nothing and return its descriptor; OSError when refused."""
    return load_program(_EXIT, attach_type=attach_type)


def sized_map(size: int) -> int:
    """Make a map that may come to so many bytes, and return its descriptor; OSError when refused."""
    return _create(_MapCreate(_HASH, 4, _ENTRY_BYTES, size // _ENTRY_BYTES, flags=_NO_PREALLOC))


def _call(helper: int) -> bytes:
    """A program that calls a helper with its context and returns 0."""
    return bytes((0x85, 0, 0, 0)) + helper.to_bytes(4, "little") + _EXIT


def _loads(instructions: bytes, attach_type: int = 0) -> bool:
    try:
        os.close(load_program(instructions, attach_type=attach_type))
    except OSError:
        return False
    return True


def _knows_helper(helper: int) -> bool:
    """Call it with wrong arguments: the verifier complains about them, unless it does not know the helper."""
    try:
        os.close(load_program(_call(helper), log=4096))
    except OSError as e:
        return "unknown func" not in str(e) and "invalid func" not in str(e) and e.errno != errno.EPERM
    return True


def _map(kind: int, key: int, value: int, entries: int) -> bool:
    try:
        os.close(_create(_MapCreate(kind, key, value, entries)))
    except OSError:
        return False
    return True


def _create(request: _MapCreate) -> int:
    return perform(lib.bpf, _MAP_CREATE, request)


def _uprobe_multi() -> bool:
    """Attach to an impossible place: kernels that know the link complain about the path (libbpf's own test)."""
    try:
        program = empty_program(BPF_TRACE_UPROBE_MULTI)
    except OSError:
        return False
    offset = c_uint64(0)
    path = ctypes.create_string_buffer(b"/")
    try:
        request = MultiLink(
            prog_fd=program,
            attach_type=BPF_TRACE_UPROBE_MULTI,
            path=ctypes.addressof(path),
            offsets=ctypes.addressof(offset),
            cnt=1,
        )
        os.close(lib.bpf(LINK_CREATE, request))
    except OSError as e:
        return e.errno == errno.EBADF
    finally:
        os.close(program)
    return True


def _perf_uprobe() -> bool:
    """Place a probe where none can be: the kernel asks for rights first, and then complains about the path."""
    try:
        os.close(open_uprobe("/", 0, at_return=False))
    except AttachError as e:
        return not e.refused
    except OSError:
        return False  # no such event source
    return True


def _perf_event() -> bool:
    """Open an event that nothing happens to."""
    try:
        os.close(open_perf_event(PerfEventAttributes(type=SOFTWARE, config=DUMMY), 0))
    except OSError:
        return False
    return True


def _needs_admin(works: Callable[[], bool]) -> bool:
    with without(Capability.CAP_SYS_ADMIN):
        return not works()


def _open_for_all() -> bool:
    """Look something up in no map: without rights, kernels from 5.19 on find out that it is none."""
    with without(Capability.CAP_BPF, Capability.CAP_SYS_ADMIN):
        try:
            lib.bpf(_MAP_LOOKUP, _MapLookup(_NO_DESCRIPTOR))
        except OSError as e:
            return e.errno == errno.EBADF
    return True
