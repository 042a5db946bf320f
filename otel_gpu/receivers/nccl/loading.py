"""How do the programs that count NCCL's calls get into the kernel?"""

from __future__ import annotations

from ...bpf.features import probe
from ...bpf.link_mode import LinkMode, usable_mode
from ...bpf.linker import ObjectLinker
from ...bpf.object import BpfObject
from ...bpf.pid_namespace import pid_namespace
from ...bpf.tracepoints import TracepointLinks
from ...components.counting.shared import StackTables

_ENDS = ("nccl_thread_ends", "nccl_program_begins")
_NOT_UPROBES = frozenset({*_ENDS, "release_entries"})
_SHARED = ("programs", "used_by_all", "events", "targets")


class NcclPrograms:
    """The loaded programs, and their tables."""

    def __init__(
        self,
        tables: StackTables,
        *,
        observes_all: bool = True,
        link: LinkMode = "auto",
        table_share: float = 1.0,
        arrivals_per_second: int = 256,
    ) -> None:
        """Load them; UnsupportedKernelError and LoadError say what the kernel lacks."""
        features = probe()
        mode = usable_mode(link, features)
        # As of the cuda object: kernels that want copies have no bpf_loop.
        self.object = BpfObject("nccl" if features.bpf_loop and mode != "copies" else "nccl_before_5_17")
        self.linker = ObjectLinker(self.object, mode)
        try:
            self.object.set_variables(
                {
                    "observe_all": int(observes_all),
                    "arrivals_per_second": arrivals_per_second,
                    **pid_namespace(),
                }
            )
            for name in _SHARED:
                self.object.share_map(name, getattr(tables, name))
            self.object.load(
                attach_type=lambda name: None if name in _NOT_UPROBES else self.linker.attach_type(name),
                share=table_share,
            )
            programs = self.object.programs()
            self.ends = TracepointLinks([programs[name] for name in _ENDS])
            # What is counted when a program ends must be counted before it is said to have.
            tables.ends.reopen()
        except BaseException:
            self.object.close()
            raise

    def close(self) -> None:
        """Unload them; idempotent."""
        self.ends.close()
        self.object.close()
