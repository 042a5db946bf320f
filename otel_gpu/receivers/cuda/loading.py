"""How do the programs that count get into the kernel, with their tables?

It takes a while, most of it in the kernel: whoever starts imports what they are read with meanwhile.
"""

from __future__ import annotations

import mmap

from ...bpf.abi.rows import COUNTED_ROW
from ...bpf.features import probe, tells_of_socket_messages
from ...bpf.link_mode import LinkMode, usable_mode
from ...bpf.linker import ObjectLinker
from ...bpf.maps import possible_cpus
from ...bpf.object import BpfObject
from ...bpf.pid_namespace import pid_namespace
from ...bpf.tracepoints import TracepointLinks
from ...components.counting.shared import REQUEST_RINGS, REQUEST_TABLES
from ...errors import UnsupportedKernelError
from ...probes.counted import Counted
from ...probes.table import counting_programs

_PREALLOCATE_BYTES = 64 << 20
_LOOPING = frozenset({"launch_multi_device", "copy_batch", "copy_3d_batch"})
"""Programs that walk lists with bpf_loop (5.17); their functions are rare, and left out below."""
_ENDS = ("thread_ends", "program_begins")
_CHILDREN = "child_begins"
_NOT_UPROBES = frozenset({*_ENDS, "who_runs", "release_entries", _CHILDREN})
_OF_MEMORY = ("live", "mapped")
_NO_ROWS = 1
_NO_PREALLOC = 1


class CudaPrograms:
    """The loaded programs that count, and their tables. What places and reads them closes them."""

    def __init__(
        self,
        *,
        map_entries: int,
        link: LinkMode = "auto",
        only: tuple[int, ...] = (),
        counted: Counted = Counted.ALL,
        table_share: float = 1.0,
        follows_requests: bool = False,
        follows_children: bool = False,
    ) -> None:
        """Load them. `only` limits counting to these pids; the less is `counted`, the less it costs.

        With `follows_children` all processes that come of these are counted as well. With `follows_requests` the work is charged to requests as well, of which the inference receiver keeps the tables.

        Tables have `table_share` of their usual size. UnsupportedKernelError and LoadError say what the kernel lacks.
        """
        features = probe()
        if not features.btf or not features.uprobes:
            what = "BTF (/sys/kernel/btf/vmlinux)" if not features.btf else "uprobes"
            raise UnsupportedKernelError(
                f"this kernel has no {what}; run a kernel of 5.10 or later built with CONFIG_DEBUG_INFO_BTF and "
                "CONFIG_UPROBE_EVENTS"
            )
        # Copies are for kernels that have no cookies (5.15): they have no bpf_loop either.
        mode = usable_mode(link, features)
        self.counted = counted
        self.link = link
        loops = features.bpf_loop and mode != "copies"
        self.left_out = frozenset() if loops else _LOOPING
        """Programs that cannot run here."""
        self.object = BpfObject("cuda" if loops else "cuda_before_5_17")
        self.linker = ObjectLinker(self.object, mode)
        # Where the inference receiver cannot be had nobody asks for requests, and old verifiers refuse what charges work to them.
        follows_requests = follows_requests and loops and tells_of_socket_messages()
        try:
            self._load(
                map_entries, only, table_share, follows_requests=follows_requests, follows_children=follows_children
            )
        except BaseException:
            self.object.close()
            raise

    def _load(
        self,
        map_entries: int,
        only: tuple[int, ...],
        table_share: float,
        *,
        follows_requests: bool,
        follows_children: bool,
    ) -> None:
        times = int(self.counted is Counted.ALL)
        self.object.set_variables(
            {
                "observe_all": 0 if only else 1,
                "busy_time": times,
                "follows_requests": int(follows_requests),
                **pid_namespace(),
            }
        )
        if not follows_requests:
            for table in REQUEST_TABLES:
                self.object.configure_map(table, max_entries=_NO_ROWS)
            for ring in REQUEST_RINGS:
                self.object.configure_map(ring, max_entries=mmap.PAGESIZE)
        # Preallocated rows cannot fail for want of memory; on machines of many CPUs they would cost too much of it, and
        # a recording of launches, which wants to begin, too much time.
        is_brief = self.counted is Counted.LAUNCHES
        is_large = map_entries * possible_cpus() * COUNTED_ROW.itemsize > _PREALLOCATE_BYTES
        flags = _NO_PREALLOC if is_brief or is_large else 0
        self.object.configure_map("rows", max_entries=map_entries, extra_flags=flags)
        if is_brief:
            for table in _OF_MEMORY:
                self.object.configure_map(table, max_entries=_NO_ROWS)
        self.object.load(
            attach_type=lambda name: None if name in _NOT_UPROBES else self.linker.attach_type(name),
            needed=(counting_programs(self.counted) | _NOT_UPROBES)
            - self.left_out
            - (frozenset() if follows_children else {_CHILDREN}),
            share=table_share,
        )
        targets = self.object.map("targets")
        for pid in only:
            targets.put(pid.to_bytes(4, "little"), b"\1")
        programs = self.object.programs()
        # Before any probe is placed: nothing is kept of a thread whose end would not be seen.
        self.ends = TracepointLinks([programs[name] for name in _ENDS])
        self.children = TracepointLinks([programs[_CHILDREN]] if follows_children else [])

    def close(self) -> None:
        """Unload them; idempotent."""
        self.children.close()
        self.ends.close()
        self.object.close()
