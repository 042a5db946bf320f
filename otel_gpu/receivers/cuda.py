"""What do programs ask of the CUDA driver? Probes on its functions, counted in the kernel."""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterator

from .. import abi, telemetry
from ..abi import CopyKind, Family, HostMemory, Loss, MemoryType
from ..bpf.features import probe
from ..bpf.linker import LinkMode, ObjectLinker
from ..bpf.maps import possible_cpus
from ..bpf.object import BpfObject
from ..discovery.libraries import FileId, Library, LibraryKind
from ..discovery.processes import Process, ProcessTable
from ..elf import ElfFile
from ..errors import ElfError, UnsupportedKernelError
from ..model import Attributes, Buckets, Measurement, MetricSpec, Resource, Value, attributes
from ..probes.attach import AttachedLibrary, PlannedProbe, plan
from ..probes.sites import Policy
from ..probes.table import DRIVER, FUNCTIONS
from .cuda_errors import error_name
from .rows import RowDelta, RowReader

_log = logging.getLogger(__name__)

COPY_KINDS = {
    CopyKind.HOST_TO_HOST: "MemcpyHostToHost",
    CopyKind.HOST_TO_DEVICE: "MemcpyHostToDevice",
    CopyKind.DEVICE_TO_HOST: "MemcpyDeviceToHost",
    CopyKind.DEVICE_TO_DEVICE: "MemcpyDeviceToDevice",
    CopyKind.DEFAULT: "MemcpyDefault",
    CopyKind.PEER: "MemcpyPeer",
}
_HOST_MEMORY = {HostMemory.PAGEABLE: "pageable", HostMemory.PINNED: "pinned"}
_MEMORY_TYPES = {t: t.name.lower() for t in MemoryType if t is not MemoryType.UNKNOWN}
_PREALLOCATE_BYTES = 64 << 20


class CudaReceiver:
    """Attaches to CUDA drivers and reads what the kernel counted."""

    def __init__(
        self,
        processes: ProcessTable,
        *,
        map_entries: int,
        policy: Policy = "fast",
        allow_single_step: bool = True,
        link: LinkMode = "auto",
        only: tuple[int, ...] = (),
    ) -> None:
        """Load the programs. `only` limits counting to these pids."""
        features = probe()
        if not features.btf or not features.uprobes:
            what = "BTF (/sys/kernel/btf/vmlinux)" if not features.btf else "uprobes"
            raise UnsupportedKernelError(
                f"this kernel has no {what}; run a kernel of 5.10 or later built with CONFIG_DEBUG_INFO_BTF and "
                "CONFIG_UPROBE_EVENTS"
            )
        self._processes = processes
        self._policy: Policy = policy
        self._allow_single_step = allow_single_step
        self._object = BpfObject("cuda")
        self._linker = ObjectLinker(self._object, link)
        self._lock = threading.Lock()
        self._libraries: dict[FileId, AttachedLibrary] = {}
        try:
            self._load(map_entries, only)
        except BaseException:
            self._object.close()
            raise
        self._rows = RowReader(self._object.map("rows"))
        self._overflow = RowReader(self._object.map("overflow"))
        self._losses: dict[Loss, int] = {}

    def _load(self, map_entries: int, only: tuple[int, ...]) -> None:
        namespace = os.stat("/proc/self/ns/pid")
        initial = namespace.st_ino == 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h
        self._object.set_rodata(
            {
                "observe_all": 0 if only else 1,
                "pidns_dev": 0 if initial else namespace.st_dev,
                "pidns_ino": 0 if initial else namespace.st_ino,
            }
        )
        # Preallocated rows cannot fail for want of memory; on machines of many CPUs they would cost too much of it.
        large = map_entries * possible_cpus() * abi.ROW.itemsize > _PREALLOCATE_BYTES
        self._object.configure_map("rows", max_entries=map_entries, extra_flags=1 if large else 0)
        self._object.load(attach_type=self._linker.attach_type)
        targets = self._object.map("targets")
        for pid in only:
            targets.put(pid.to_bytes(4, "little"), b"\1")

    def close(self) -> None:
        """Detach from everything and unload; idempotent."""
        with self._lock:
            for library in self._libraries.values():
                library.close()
            self._libraries.clear()
            self._object.close()

    def attach(self, library: Library, opener: str) -> AttachedLibrary | None:
        """Place the probes in a library, once; None for libraries without any."""
        if library.kind is not LibraryKind.DRIVER:
            return None
        with self._lock:
            if (known := self._libraries.get(library.id)) is not None:
                return known
            try:
                with ElfFile(opener) as elf:
                    probes = self.plan(elf)
                attached = AttachedLibrary(library.path, probes, self._linker, opener)
            except (ElfError, OSError) as e:
                _log.warning("cannot attach to %s: %s", library.path, e)
                return None
            self._libraries[library.id] = attached
        _log.info("attached %d probes to %s", attached.attached, library.path)
        return attached

    def plan(self, elf: ElfFile) -> list[PlannedProbe]:
        """Say where the probes of a driver go."""
        return plan(elf, DRIVER, policy=self._policy, allow_single_step=self._allow_single_step)

    def is_attached(self, library: Library) -> bool:
        """Say whether a library's probes are in place."""
        return library.id in self._libraries

    def collect(self) -> list[Measurement]:
        """Return what was counted since the last call; rows of ended processes are removed."""
        ended = [p for p in self._processes.ended() if p.incarnation is not None]
        sums = _Sums()
        for delta in self._rows.read():
            sums.add(self._processes.owner(delta.tgid, delta.incarnation), delta)
        for delta in self._overflow.read():
            sums.add(self._processes.owner(delta.tgid, delta.incarnation), delta)
        programs = {(p.pid, p.incarnation) for p in ended if p.incarnation is not None}
        self._rows.forget(programs)
        self._overflow.forget(programs)
        return list(sums.measurements())

    def losses(self) -> dict[Loss, int]:
        """Return how often each thing went wrong in the kernel, since the start."""
        table = self._object.map("losses")
        found = {}
        for loss in Loss:
            value = table.get(loss.to_bytes(4, "little")) or b""
            found[loss] = sum(int.from_bytes(value[i : i + 8], "little") for i in range(0, len(value), 8))
        return found

    def fill(self) -> dict[str, tuple[int, int]]:
        """Return entries and capacity of the count tables."""
        rows, overflow = self._object.map("rows"), self._object.map("overflow")
        return {
            "rows": (self._rows.entries, rows.max_entries),
            "overflow": (self._overflow.entries, overflow.max_entries),
        }

    def probes(self) -> tuple[int, dict[str, int]]:
        """Return how many probes are in place, and how many failed, by reason."""
        with self._lock:
            attached = sum(library.attached for library in self._libraries.values())
            failed: dict[str, int] = defaultdict(int)
            for library in self._libraries.values():
                for reason in library.failures.values():
                    failed[reason] += 1
        return attached, dict(failed)


class _Sums:
    """Adds rows up into series."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Resource, MetricSpec, Attributes], int] = defaultdict(int)
        self._histograms: dict[tuple[Resource, MetricSpec, Attributes], Buckets] = defaultdict(Buckets)

    def add(self, process: Process, row: RowDelta) -> None:
        """Add one row to the series it counts in."""
        _ADD[Family(row.family)](self, process.resource, row)

    def measurements(self) -> Iterator[Measurement]:
        tables: tuple[dict[tuple[Resource, MetricSpec, Attributes], Value], ...]
        tables = (self._numbers, self._histograms)  # type: ignore[assignment]
        for table in tables:
            for (resource, metric, attrs), value in table.items():
                yield Measurement(resource, metric, attrs, value)

    def _bucket(
        self,
        key: tuple[Resource, MetricSpec, Attributes],
        bucket: int,
        count: int,
        total: float,
        shift: int = abi.BUCKET_SHIFT,
    ) -> None:
        if bucket == abi.BUCKET_NONE:
            return
        histogram = self._histograms[key]
        histogram.sum += total
        histogram.count += count
        if bucket == abi.BUCKET_ZERO:
            histogram.zero_count += count
        else:
            histogram.counts[bucket - shift] = histogram.counts.get(bucket - shift, 0) + count

    def launch(self, resource: Resource, row: RowDelta) -> None:
        attrs = attributes({"cuda.kernel.name": f"libcuda+{row.subject:#x}"})
        self._numbers[resource, telemetry.KERNEL_LAUNCH_CALLS, attrs] += row.count
        self._bucket((resource, telemetry.KERNEL_GRID_SIZE, attrs), row.bucket_a, row.count, row.sum_a)
        self._bucket((resource, telemetry.KERNEL_BLOCK_SIZE, attrs), row.bucket_b, row.count, row.sum_b)

    def graph_launch(self, resource: Resource, row: RowDelta) -> None:
        self._numbers[resource, telemetry.GRAPH_LAUNCH_CALLS, ()] += row.count

    def copy(self, resource: Resource, row: RowDelta) -> None:
        attrs = attributes(
            {
                "cuda.memcpy.kind": COPY_KINDS[CopyKind(row.kind)],
                "cuda.memory.host.type": _HOST_MEMORY.get(HostMemory(row.detail)),
            }
        )
        self._bucket((resource, telemetry.MEMORY_COPIES, attrs), row.bucket_a, row.count, row.sum_a)

    def memset(self, resource: Resource, row: RowDelta) -> None:
        self._numbers[resource, telemetry.MEMSET_BYTES, ()] += row.sum_a

    def alloc(self, resource: Resource, row: RowDelta) -> None:
        attrs = attributes({"cuda.memory.type": _MEMORY_TYPES[MemoryType(row.kind)]})
        self._numbers[resource, telemetry.MEMORY_ALLOCATIONS, attrs] += row.sum_a
        self._numbers[resource, telemetry.MEMORY_USAGE, attrs] += row.sum_a

    def free(self, resource: Resource, row: RowDelta) -> None:
        kind = _MEMORY_TYPES.get(MemoryType(row.kind))
        if kind is None:
            return
        attrs = attributes({"cuda.memory.type": kind})
        self._numbers[resource, telemetry.MEMORY_FREE_BYTES, attrs] += row.sum_a
        self._numbers[resource, telemetry.MEMORY_USAGE, attrs] -= row.sum_a

    def wait(self, resource: Resource, row: RowDelta) -> None:
        key = (resource, telemetry.SYNCHRONIZE_DURATION, attributes({"cuda.function": FUNCTIONS[row.function]}))
        self._bucket(key, row.bucket_a, row.count, row.sum_a / 1e9, abi.DURATION_SHIFT)

    def error(self, resource: Resource, row: RowDelta) -> None:
        attrs = attributes({"cuda.function": FUNCTIONS[row.function], "error.type": error_name(row.subject)})
        self._numbers[resource, telemetry.ERRORS, attrs] += row.count


_ADD = {
    Family.LAUNCH: _Sums.launch,
    Family.GRAPH_LAUNCH: _Sums.graph_launch,
    Family.COPY: _Sums.copy,
    Family.MEMSET: _Sums.memset,
    Family.ALLOC: _Sums.alloc,
    Family.FREE: _Sums.free,
    Family.WAIT: _Sums.wait,
    Family.ERROR: _Sums.error,
}
