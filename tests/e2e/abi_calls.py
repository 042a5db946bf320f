"""For any function of the driver: a call with distinct values, and the rows that it must be counted in.

Everything follows from the function's name and from cuda.h, nothing from the hook table that is under test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from otel_gpu.bpf.abi.rows import CopyKind, Family, MemoryType
from tests.e2e.cuda_header import Parameter

GARBAGE = 0xDEAD_BEEF << 32
"""What the upper halves of 32-bit arguments hold: the conventions leave them undefined."""
STREAM, FUNCTION, EXECUTABLE = 0x5_0000_1111, 0xF_0000_2222, 0xE_0000_3333
PITCH = 2560
BYTES, WIDTH, HEIGHT, DEPTH, COUNT = 5_000_000_123, 777, 13, 5, 4099
GRID, BLOCK = (2_147_483_647, 65_533, 3), (16, 4, 2)
SIZES = (1, 4096, 6_000_000_001)

STRUCTS: dict[str, tuple[str, ...]] = {
    "CUDA_MEMCPY2D": ("srcMemoryType", "dstMemoryType", "WidthInBytes", "Height"),
    "CUDA_MEMCPY3D": ("srcMemoryType", "dstMemoryType", "WidthInBytes", "Height", "Depth"),
    "CUDA_MEMCPY3D_PEER": ("srcMemoryType", "dstMemoryType", "WidthInBytes", "Height", "Depth"),
    "CUDA_MEMCPY3D_BATCH_OP": ("src.type", "dst.type", "extent.width", "extent.height", "extent.depth"),
    "CUlaunchConfig": ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "hStream"),
    "CUDA_LAUNCH_PARAMS": (
        "function", "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "hStream",
    ),
}  # fmt: skip
_DIMENSIONS = dict(zip((f"{what}Dim{axis}" for what in ("grid", "block") for axis in "XYZ"), GRID + BLOCK, strict=True))
_HOST, _DEVICE = 1, 2
_POINTER = 1
_NARROW = 0x77
Argument = int | dict[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One row, as far as it can be known beforehand."""

    family: Family
    subject: int = 0
    kind: int = 0
    count: int = 1
    sum_a: int | None = 0
    """None where it is a time."""
    sum_b: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    symbol: str
    arguments: list[Argument]
    rows: frozenset[Row]
    next: dict[str, int]
    """What the function writes to where its caller says."""


def plain_name(symbol: str) -> str:
    """Return a function's name without version and variant."""
    return re.sub(r"(_v\d)?(_pt[sd]s?z?)?$", "", symbol)


def arguments(parameters: Sequence[Parameter], layout: Mapping[str, int], address: int) -> list[Argument]:
    """Return a value for every parameter, no two alike; `address` is what is freed or registered."""
    return [_argument(p, position, layout, address) for position, p in enumerate(parameters)]


def _argument(parameter: Parameter, position: int, layout: Mapping[str, int], address: int) -> Argument:
    struct = parameter.type.removeprefix("const ").removesuffix(" *").removesuffix("*").strip()
    if struct in STRUCTS:
        count = 2 if parameter.name in ("launchParamsList", "opList") else 1
        return {"bytes": b"".join(_struct(struct, layout, i) for i in range(count)).hex()}
    match parameter.name:
        case "ByteCount" | "bytesize" | "size":
            value = BYTES
        case "N":
            value = COUNT
        case "Width" | "WidthInBytes" | "grid_width":
            value = WIDTH
        case "Height" | "grid_height":
            value = HEIGHT
        case "hStream":
            value = STREAM
        case "f":
            value = FUNCTION
        case _ if parameter.type == "CUgraphExec":
            value = EXECUTABLE
        case "count":
            value = len(SIZES)
        case "numOps" | "numDevices":
            value = 2
        case "sizes":
            return {"bytes": b"".join(size.to_bytes(8, "little") for size in SIZES).hex()}
        case "p" | "dptr" | "handle" if not parameter.type.endswith("*") or parameter.name == "p":
            value = address
        case "dptr" | "pp" | "handle" | "pPitch":
            return {"bytes": bytes(8).hex()}
        case name if name in _DIMENSIONS:
            value = _DIMENSIONS[name]
        case _:
            value = 0x1_0000_0001 * (position + _NARROW)
    return value if parameter.size == 8 else value & 0xFFFFFFFF | GARBAGE


def _struct(name: str, layout: Mapping[str, int], index: int) -> bytes:
    data = bytearray(b"\xee" * layout[name])
    values = {
        "srcMemoryType": (_HOST, 4), "dstMemoryType": (_DEVICE, 4), "WidthInBytes": (WIDTH, 8), "Height": (HEIGHT, 8),
        "Depth": (DEPTH, 8), "extent.width": (WIDTH + index, 8), "extent.height": (HEIGHT, 8),
        "src.type": (_POINTER, 4), "dst.type": (_POINTER, 4),
        "extent.depth": (DEPTH, 8), "hStream": (STREAM, 8), "function": (FUNCTION + index, 8),
        **{dimension: (value, 4) for dimension, value in _DIMENSIONS.items()},
    }  # fmt: skip
    for member in STRUCTS[name]:
        value, size = values[member]
        at = layout[f"{name}.{member}"]
        data[at : at + size] = value.to_bytes(size, "little")
    return bytes(data)


def _product(values: Sequence[int]) -> int:
    result = 1
    for value in values:
        result *= value
    return result


def copy_kind(name: str) -> CopyKind:
    """Return the kind that a linear copy's name says."""
    if "Peer" in name:
        return CopyKind.PEER
    direction = re.search(r"([HDA])to([HDA])", name)
    if not direction:
        return CopyKind.DEFAULT
    sides = direction[1] == "H", direction[2] == "H"
    return {
        (True, False): CopyKind.HOST_TO_DEVICE,
        (False, True): CopyKind.DEVICE_TO_HOST,
        (False, False): CopyKind.DEVICE_TO_DEVICE,
    }[sides]


def memory_type(name: str) -> MemoryType:
    """Return the type of what an allocating function's name says."""
    for word, kind in (
        ("Managed", MemoryType.MANAGED), ("Register", MemoryType.REGISTERED), ("Host", MemoryType.HOST),
        ("Async", MemoryType.ASYNC), ("Create", MemoryType.VIRTUAL),
    ):  # fmt: skip
        if word in name:
            return kind
    return MemoryType.DEVICE


def expected_rows(symbol: str) -> frozenset[Row]:
    """Return the rows that a successful call with our arguments is counted in."""
    name = plain_name(symbol)
    blocks, threads = _product(GRID), _product(BLOCK)
    waits = () if "Async" in name else (Row(Family.WAIT, sum_a=None),)
    if name.startswith("cuLaunchGrid"):
        return frozenset({Row(Family.LAUNCH, FUNCTION, sum_a=WIDTH * HEIGHT)})
    if name == "cuLaunch":
        return frozenset({Row(Family.LAUNCH, FUNCTION, sum_a=1)})
    if name == "cuLaunchCooperativeKernelMultiDevice":
        return frozenset(Row(Family.LAUNCH, FUNCTION + i, sum_a=blocks, sum_b=threads) for i in range(2))
    if name.startswith("cuLaunch") and not name.startswith("cuLaunchHostFunc"):
        return frozenset({Row(Family.LAUNCH, FUNCTION, sum_a=blocks, sum_b=threads)})
    if name == "cuGraphLaunch":
        return frozenset({Row(Family.GRAPH_LAUNCH, EXECUTABLE)})
    if name == "cuMemcpyBatchAsync":
        return frozenset(Row(Family.COPY, kind=CopyKind.DEFAULT, sum_a=size) for size in SIZES)
    if name == "cuMemcpy3DBatchAsync":
        sizes = [(WIDTH + i) * HEIGHT * DEPTH for i in range(2)]
        # Both fall into one bucket, hence one row.
        return frozenset({Row(Family.COPY, kind=CopyKind.DEFAULT, count=2, sum_a=sum(sizes))})
    if name == "cuMemcpy3DWithAttributesAsync":
        return frozenset({Row(Family.COPY, kind=CopyKind.DEFAULT, sum_a=WIDTH * HEIGHT * DEPTH)})
    if name.startswith(("cuMemcpy2D", "cuMemcpy3D")):
        kind = CopyKind.PEER if "Peer" in name else CopyKind.HOST_TO_DEVICE
        size = WIDTH * HEIGHT * (DEPTH if "3D" in name else 1)
        return frozenset({Row(Family.COPY, kind=kind, sum_a=size), *waits})
    if name.startswith("cuMemcpy"):
        return frozenset({Row(Family.COPY, kind=copy_kind(name), sum_a=BYTES), *waits})
    if element := re.match(r"cuMemsetD(2D)?(8|16|32)", name):
        elements = WIDTH * HEIGHT if element[1] else COUNT
        return frozenset({Row(Family.MEMSET, sum_a=elements * int(element[2]) // 8)})
    if name.startswith(("cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister", "cuMemCreate")):
        size = PITCH * HEIGHT if "Pitch" in name else BYTES
        return frozenset({Row(Family.ALLOC, kind=memory_type(name), sum_a=size)})
    if name.startswith(("cuMemFree", "cuMemHostUnregister", "cuMemRelease")):
        return frozenset({Row(Family.FREE, kind=MemoryType.UNKNOWN)})
    if name.endswith("Synchronize"):
        return frozenset({Row(Family.WAIT, sum_a=None)})
    return frozenset()
