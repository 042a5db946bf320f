"""What do this process's rights really open? Each thing is tried, on a file of ours and on a process of another user.

A trial returns None where it goes through, else the system's reason. Nothing is left behind.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..bpf.features import empty_program, sized_map
from ..bpf.link_mode import LinkMode
from ..bpf.links import BPF_TRACE_UPROBE_MULTI, Placement, attach_multi, attach_perf
from ..bpf.perf_event import CPU_CLOCK, DUMMY, SOFTWARE, PerfEventAttributes, open_perf_event
from ..bpf.placed import placed_programs
from ..errors import AttachError
from ..runtime.online_cpus import online_cpus

_NOBODY = 65_534
_ENOUGH = 1 << 16
_INODE = 4
"""The column of a mapping's file; without one it holds 0."""
_TABLE_BYTES = 64 << 20
"""About what the agent's tables may come to."""


def place(mode: LinkMode) -> str | None:
    """Place a program that does nothing on a file that nobody executes."""
    site = Placement(0, 0)

    def attach() -> None:
        program = empty_program(BPF_TRACE_UPROBE_MULTI if mode == "multi" else 0)
        try:
            if mode == "multi":
                attach_multi(program, __file__, [site], at_return=False).close()
            else:
                attach_perf(program, __file__, site, at_return=False, cookies=mode == "perf").close()
        finally:
            os.close(program)

    return _tried(attach)


def make_tables() -> str | None:
    """Make a map that may grow to the size of the agent's, which kernels before 5.11 count as locked memory."""
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        pass  # the agent cannot either
    return _tried(lambda: os.close(sized_map(_TABLE_BYTES)))


def hear_of_processes() -> str | None:
    """Open the event that tells of processes which start, map and end."""
    return _tried(lambda: os.close(open_perf_event(PerfEventAttributes(type=SOFTWARE, config=DUMMY), online_cpus()[0])))


def sample_cpus() -> str | None:
    """Open the event that samples a CPU."""
    return _tried(
        lambda: os.close(open_perf_event(PerfEventAttributes(type=SOFTWARE, config=CPU_CLOCK), online_cpus()[0]))
    )


def list_links() -> str | None:
    """Ask the kernel which programs are placed where."""
    return _tried(lambda: list(placed_programs()))


@contextmanager
def process_of_another_user() -> Iterator[int | None]:
    """Lend a process of another user: one of ours where we may make it, else the first that we may look at; or None."""
    try:
        child = subprocess.Popen(
            ["sleep", "60"], user=_NOBODY, group=_NOBODY, extra_groups=(), stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        others = list(_processes_of_others())
        yield next((pid for pid in others if look_at(pid) is None), others[0] if others else None)
        return
    with child:
        try:
            yield child.pid
        finally:
            child.kill()


def _processes_of_others() -> Iterator[int]:
    for name in os.listdir("/proc"):
        try:
            # Threads of the kernel have no program.
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid != os.geteuid() and _read(int(name), "cmdline"):
                yield int(name)
        except OSError:
            continue


def look_at(pid: int) -> str | None:
    """Read what a process has mapped."""
    return _tried(lambda: _read(pid, "maps"))


def read_memory(pid: int) -> str | None:
    """Read a process's environment, and the first bytes of a file that it has mapped."""

    def read() -> None:
        _read(pid, "environ")
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(int(_mapped_file(pid).partition("-")[0], 16))
            memory.read(4)

    return _tried(read)


def open_mapped(pid: int) -> str | None:
    """Open a file that a process has mapped by the kernel's own link, whatever lies under its name by now."""
    return _tried(lambda: os.close(os.open(f"/proc/{pid}/map_files/{_mapped_file(pid)}", os.O_RDONLY)))


def _mapped_file(pid: int) -> str:
    """Return the addresses at which a program has mapped a file; its own is the first."""
    for line in _read(pid, "maps").splitlines():
        fields = line.split()
        if len(fields) > _INODE and fields[_INODE] != b"0":
            start, _, end = fields[0].decode().partition("-")
            return f"{int(start, 16):x}-{int(end, 16):x}"
    raise FileNotFoundError(errno.ENOENT, "it has mapped no file")


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(_ENOUGH)


def _tried(attempt: Callable[[], object]) -> str | None:
    try:
        attempt()
    except AttachError as e:
        return str(e).rpartition(": ")[2]
    except OSError as e:
        return e.strerror or str(e)
    return None
