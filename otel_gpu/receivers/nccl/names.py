"""What are NCCL's datatypes, reductions, errors and communicators called?"""

from __future__ import annotations

DATATYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8e4m3",
    "float8e5m2",
)
"""ncclDataType_t."""
REDUCTIONS = ("sum", "prod", "max", "min", "avg", "custom")
"""ncclRedOp_t; what a program made itself is behind the others."""
ERRORS = (
    "ncclSuccess",
    "ncclUnhandledCudaError",
    "ncclSystemError",
    "ncclInternalError",
    "ncclInvalidArgument",
    "ncclInvalidUsage",
    "ncclRemoteError",
    "ncclInProgress",
    "ncclTimeout",
)
"""ncclResult_t."""
UNKNOWN = "unknown"
HOST_WAIT = "host_wait"
"""The host waited for the stream, or for an event on it, or asked for it."""


def comm_name(comm: int) -> str:
    """Return how a communicator is shown: the hash of its id, in hexadecimal; `unknown` for none."""
    return f"{comm:016x}" if comm else UNKNOWN


def datatype_name(datatype: int) -> str:
    """Return a datatype's name."""
    return DATATYPES[datatype] if datatype < len(DATATYPES) else UNKNOWN


def reduction_name(reduction: int) -> str | None:
    """Return a reduction's name; None where nothing is reduced."""
    return REDUCTIONS[reduction] if reduction < len(REDUCTIONS) else None
