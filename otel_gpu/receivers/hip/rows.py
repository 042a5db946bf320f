"""What do HIP's rows and calls mean, in terms of CUDA's?

HIP is counted by CUDA's programs and added up by CUDA's sums. This module says in which names that is published, and
reads the few structures and rules that differ.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from ...bpf.abi.rows import DEVICE_UNKNOWN, CopyKind
from ...discovery.processes import Process
from ...signals import cuda, hip
from ...signals.metrics import Measurement, MetricSpec, attributes

_COPY_SIDES = {
    CopyKind.HOST_TO_HOST: (1, 1),
    CopyKind.HOST_TO_DEVICE: (1, 2),
    CopyKind.DEVICE_TO_HOST: (2, 1),
    CopyKind.DEVICE_TO_DEVICE: (2, 2),
}
_UNIFIED = (4, 4)
"""CUmemorytype of a copy's two sides, where the kind does not tell them."""

_OF_CUDA = {spec.name: spec for spec in cuda.SPECS}
PARALLEL: dict[MetricSpec, MetricSpec] = {
    _OF_CUDA[of_hip.name.replace("gpu.hip.", "gpu.cuda.")]: of_hip for of_hip in hip.SPECS
}
"""The metrics of HIP, by those of CUDA that its rows are added up as."""
_ATTRIBUTES = {of_hip.name.replace("hip.", "cuda."): of_hip.name for of_hip in hip.ATTRIBUTES}

# driver_types.h of HIP: where hipMemcpy3DParms has the extent and the kind, hipKernelNodeParams and hipMemsetParams.
_PARMS_EXTENT = 128
_KERNEL_NODE = struct.Struct("<3I4xQQ3I")
_MEMSET_NODE = struct.Struct("<QI4xQQI4xQ")


def measurements(of_cuda: Iterable[Measurement]) -> Iterator[Measurement]:
    """Yield sums of HIP rows under the names of HIP's metrics."""
    for m in of_cuda:
        named = {_ATTRIBUTES.get(name, name): value for name, value in m.attributes}
        yield Measurement(m.resource, PARALLEL[m.metric], attributes(named), m.value)


def device_of(device: int, process: Process) -> int:
    """Return the device of a row: threads that never chose one use the first."""
    return 0 if device == DEVICE_UNKNOWN and not process.late else device


def devices_reset(device: int) -> tuple[int, ...]:
    """Return under which numbers a device's memory is kept: the first is also that of threads that chose none."""
    return (0, DEVICE_UNKNOWN) if device in (0, DEVICE_UNKNOWN) else (device,)


def as_cuda(function: str, data: bytes) -> tuple[str, bytes]:
    """Return the function of CUDA that has the same parameters and effect, with its structure in CUDA's layout."""
    match function:
        case "hipGraphAddKernelNode":
            bx, by, bz, _extra, kernel, gx, gy, gz = _KERNEL_NODE.unpack_from(data)
            data = struct.pack("<Q6I", kernel, gx, gy, gz, bx, by, bz).ljust(len(data), b"\0")
        case "hipGraphAddMemsetNode":
            address, element, height, pitch, value, width = _MEMSET_NODE.unpack_from(data)
            data = struct.pack("<QQIIQQ", address, pitch, value, element, width, height).ljust(len(data), b"\0")
        case "hipGraphAddMemcpyNode":
            width, height, depth, kind = struct.unpack_from("<3QI", data, _PARMS_EXTENT)
            source, target = _COPY_SIDES.get(kind, _UNIFIED)
            data = struct.pack("<32xI84xI52x3Q", source, target, width, height, depth).ljust(len(data), b"\0")
    return "cu" + function.removeprefix("hip"), data
