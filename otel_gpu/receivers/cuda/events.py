"""What did rare calls tell? Kernel names, graphs, contexts: the events of the kernel, kept by program."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from ...bpf.abi.events import ARGUMENTS, EVENT, ORIGIN, EventType, NodeType
from ...bpf.abi.rows import KIND_HIP, ORDINALS, Family
from ...bpf.records import struct_of
from ...components.counting.device_time import BusyPeriod
from ...discovery.processes import Began, Process
from ...discovery.program_id import ProgramId
from ...probes.table import FUNCTIONS
from ...signals.telemetry import OTHER
from ...text import escaped
from ..hip import rows as hip
from . import announced
from .graphs import Contents, Graphs, Node
from .kernel_handles import KernelHandles, handle_of
from .kernel_names.driver_records import agreed
from .kernel_names.hip_kernels import HostPointer
from .kernel_names.kernels import KernelTable
from .kernel_names.launches import Launch
from .kernel_names.resolver import KernelNameResolver
from .live_allocations import LiveAllocations
from .rows import RowDelta

_MAX_DEVICE_PROGRAMS = 4096
_MAX_PERIODS = 1 << 16
"""Between two reads; what is left out is time of which nobody knows whose it was."""
_MAX_RECORDED = 1024
_MAX_NAME = 4096
_KEPT_OF_NAME = 4000
_MAX_FILE_NAME = 255
_NONE: Mapping[int, str] = MappingProxyType({})

OnProgram = Callable[[int, Began, announced.Announced], None]

_EVENT, _ARGUMENTS, _ORIGIN = struct_of(EVENT), struct_of(ARGUMENTS), struct_of(ORIGIN, as_bytes=("stack",))


class CudaEvents:
    """Handles the receiver's events. `lock` guards what they change."""

    def __init__(
        self, kernels: KernelTable, resolver: KernelNameResolver, allocations: LiveAllocations, on_program: OnProgram
    ) -> None:
        """`on_program` is told of programs that show themselves, as exec id, beginning and who they are."""
        self.lock = threading.RLock()
        self._on_program = on_program
        self._resolver = resolver
        self._kernels = kernels
        self._allocations = allocations
        self._graphs: dict[ProgramId, Graphs] = {}
        self._handles = KernelHandles()
        self._recorded: OrderedDict[tuple[ProgramId, int], set[bytes]] = OrderedDict()
        """What drivers' records said of handles whose first launch is still to come."""
        self._cut_names = 0
        self._unknown_nodes = 0
        self._periods: list[tuple[ProgramId, int, BusyPeriod]] = []
        # Those of ended programs are still asked for when their last counts are exported, so only age ends them.
        self._device_uuids: OrderedDict[ProgramId, dict[int, str]] = OrderedDict()

    def handle(self, record: bytes) -> None:
        """Take in one event."""
        kind, tgid, exec_id, tid, when_ns, a, b, c, d = _EVENT.unpack_from(record)
        program = ProgramId(tgid, exec_id)
        rest = record[EVENT.itemsize :]
        if kind == EventType.PROGRAM:
            self._on_program(exec_id, Began(a, b), announced.read(tgid, c, rest, has_path=bool(d)))
            return
        with self.lock:
            match kind:
                case EventType.NAMED:
                    key = self._handles.named(program, a, d)
                    if key is not None and (name := self._bounded(rest.split(b"\0", 1)[0])):
                        self._kernels.learn(program, key, name, module=b)
                case EventType.CAPTURED:
                    detail = d & ~KIND_HIP if b == NodeType.COPY else d
                    value = self._handles.key(program, c) if b == NodeType.KERNEL else c
                    self._of(program).captured(a, Node(NodeType(b), value, detail))
                case EventType.CALL:
                    *arguments, data = _ARGUMENTS.unpack_from(rest)
                    function = FUNCTIONS[a]
                    if function == "hipDeviceReset":
                        self._hip_device_reset(program, d, when_ns)
                        return
                    if function.startswith("hip"):
                        function, data = hip.as_cuda(function, data)
                    self._called(program, function, b, c, tuple(arguments), data, when_ns)
                case EventType.FIRST_LAUNCH if b & KIND_HIP:
                    self._resolver.submit(HostPointer(program, a))
                case EventType.RECORDED:
                    self._recorded.setdefault((program, a), set()).add(rest.split(b"\0", 1)[0])
                    if len(self._recorded) > _MAX_RECORDED:
                        self._recorded.popitem(last=False)
                case EventType.FIRST_LAUNCH if self._handles.key(program, a) == a:
                    self._learn_recorded(program, a)
                    ip, sp, fp, *saved, stack = _ORIGIN.unpack_from(rest)
                    self._resolver.submit(Launch(program, a, ip, sp, fp, tuple(saved), stack))
                case EventType.BUSY_PERIOD if len(self._periods) < _MAX_PERIODS:
                    self._periods.append((program, tid, BusyPeriod(a, b, c, when_ns, d)))
                case _:
                    pass

    def take_busy_periods(self) -> list[tuple[ProgramId, int, BusyPeriod]]:
        """Return the busy periods of work that ended since the last call, with whose they were and on which device."""
        with self.lock:
            taken, self._periods = self._periods, []
        return taken

    def kernel_name(self, process: Process, key: int) -> str:
        """Return a kernel's name, or the file that launches it and its handle where the name is not known."""
        if not key:
            return OTHER  # rows of all kernels together, which is what is counted when the table is full
        program = process.program
        name = self._kernels.name(program, key)
        if name is not None:
            return name
        # Of a process that ended at once nobody knows what it had mapped.
        file = self._resolver.caller(program, key) or dict(process.resource.attributes).get("process.executable.name")
        return f"{escaped(str(file or 'unknown'), _MAX_FILE_NAME)}+{handle_of(key):#x}"

    def key_of(self, process: Process, handle: int, generation: int | None = None) -> int:
        """Return the key of the kernel that a handle is, or was at a generation."""
        with self.lock:
            return self._handles.key(process.program, handle, generation)

    def awaits_name(self, row: RowDelta) -> bool:
        """Say whether a row counts launches of a kernel whose name is being looked up."""
        program = row.program
        if row.family == Family.LAUNCH:
            return self._resolver.pending(program, self._handles.key(program, row.subject, row.function))
        if row.family != Family.GRAPH_LAUNCH or (graphs := self._graphs.get(program)) is None:
            return False
        contents = graphs.contents(row.subject) or ()
        return any(n.type is NodeType.KERNEL and self._resolver.pending(program, n.value) for n in contents)

    def graph_contents(self, process: Process, version: int) -> Contents | None:
        """Return what one launch of a graph executes; None where it is not known."""
        graphs = self._graphs.get(process.program)
        return None if graphs is None else graphs.contents(version)

    def may_launch_on_device(self, process: Process) -> bool:
        """Say whether a process's kernels can launch graphs."""
        graphs = self._graphs.get(process.program)
        return graphs is not None and graphs.may_launch_on_device

    def device_uuids(self, process: Process) -> Mapping[int, str]:
        """Return the UUIDs that a process was told, in hexadecimal digits, by ordinal."""
        with self.lock:
            return dict(self._device_uuids.get(process.program, _NONE))

    def unknown_graph_nodes(self) -> int:
        """Return how many changes to graphs were about nodes that nobody saw being made."""
        with self.lock:
            return self._unknown_nodes + sum(g.unknown_nodes for g in self._graphs.values())

    def cut_names(self) -> int:
        """Return how many names were too long to be kept whole."""
        return self._cut_names

    def forget(self, program: ProgramId) -> None:
        """Drop a program that has ended."""
        with self.lock:
            self._handles.forget(program)
            if (graphs := self._graphs.pop(program, None)) is not None:
                self._unknown_nodes += graphs.unknown_nodes
            self._kernels.forget(program)
            self._resolver.forget(program)

    def _hip_device_reset(self, program: ProgramId, device: int, when_ns: int) -> None:
        for number in hip.devices_reset(device):
            self._allocations.context_ended(program, context=None, device=number, when_ns=when_ns, is_hip=True)

    def _learn_recorded(self, program: ProgramId, handle: int) -> None:
        """Learn what the driver's own record said of a kernel at its launch."""
        if said := self._recorded.pop((program, handle), None):
            name = agreed(said)
            if name is not None and self._kernels.name(program, handle) is None:
                self._kernels.learn(program, handle, name, derived=True)

    def _bounded(self, name: bytes) -> str:
        """Return a name that is not too long: of what is cut a hash stays, so that two names remain two."""
        text = name.decode("utf-8", "replace")
        if len(text) <= _MAX_NAME:
            return text
        self._cut_names += 1
        return f"{text[:_KEPT_OF_NAME]}…{hashlib.blake2s(name, digest_size=8).hexdigest()}"

    def _of(self, program: ProgramId) -> Graphs:
        return self._graphs.setdefault(program, Graphs(partial(self._handles.key, program)))

    def _device_uuid(self, program: ProgramId, ordinal: int, uuid: bytes) -> None:
        # A UUID of zeros is none; and the first answer stays, for a device has one only.
        if ordinal < ORDINALS and any(uuid):
            self._device_uuids.setdefault(program, {}).setdefault(ordinal, uuid.hex())
            if len(self._device_uuids) > _MAX_DEVICE_PROGRAMS:
                self._device_uuids.popitem(last=False)

    def _forget_functions(self, program: ProgramId) -> None:
        # Which ones went with the context is not known.
        self._kernels.unload_all(program)
        self._resolver.unloaded(program)

    def _called(
        self,
        program: ProgramId,
        function: str,
        out: int,
        ident: int,
        arguments: tuple[int, ...],
        data: bytes,
        when: int,
    ) -> None:
        match function:
            case "cuKernelGetFunction":
                original = self._handles.key(program, arguments[1])
                if (key := self._handles.named(program, out, ident)) is not None:
                    self._kernels.alias(program, key, original)
            case "cuModuleUnload" | "cuLibraryUnload":
                if not self._kernels.unload(program, arguments[0]):
                    self._resolver.unloaded(program)
            case "cuCtxDestroy":
                self._forget_functions(program)
                self._allocations.context_ended(program, context=arguments[0], device=None, when_ns=when)
            case "cuDevicePrimaryCtxReset" | "cuDevicePrimaryCtxRelease" | "cuGreenCtxDestroy":
                self._forget_functions(program)
                # Memory whose device is known is of contexts that were seen being made, and so is the primary one.
                if ident:
                    self._allocations.context_ended(program, context=ident, device=None, when_ns=when)
            case "cuDeviceGetUuid":
                self._device_uuid(program, arguments[1] & 0xFFFFFFFF, data[:16])
            case _:
                self._of(program).called(function, out, ident, arguments, data)
