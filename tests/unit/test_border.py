"""Every number of ebpf/abi/ is Python's number, or said here to be the kernel's alone: a new one fails until it is either."""

from __future__ import annotations

import enum
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from otel_gpu import abi
from otel_gpu.cpython import layout as python_layout
from otel_gpu.cpython import process as python_process
from otel_gpu.eh_frame import rows
from otel_gpu.receivers.cuda import kernel_handles
from otel_gpu.receivers.inference import callbacks, engine_events, frames, records
from otel_gpu.receivers.nccl import names as nccl_names
from otel_gpu.receivers.nccl import records as nccl
from otel_gpu.receivers.rdma import records as rdma
from otel_gpu.symbols import stacks
from otel_gpu.unwind import loader

_SOURCES = Path(__file__).parents[2] / "ebpf"
_HEADERS = sorted((_SOURCES / "abi").glob("*.h"))
_TEXT = "\n".join(header.read_text() for header in _HEADERS)

_MIRRORED: dict[str, type[enum.IntEnum] | Mapping[str, int]] = {
    "family": abi.Family,
    "copy_kind": abi.CopyKind,
    "host_memory": abi.HostMemory,
    "memory_type": abi.MemoryType,
    "free_cause": abi.FreeCause,
    "allocation": abi.Allocation,
    "loss": abi.Loss,
    "table": abi.Table,
    "event_type": abi.EventType,
    "node_type": abi.NodeType,
    "wait_kind": {"CONTEXT": abi.WAIT_CONTEXT, "STREAM": abi.WAIT_STREAM, "EVENT": abi.WAIT_EVENT},
    "row_kind": rows.RowKind,
    "stop": stacks.Stop,
    "frame_kind": {"NATIVE": stacks.NATIVE, "PYTHON": stacks.PYTHON, "EXACT": stacks.EXACT, "MADE": stacks.MADE},
    "sample_type": abi.SampleType,
    "thread_activity": abi.ThreadActivity,
    "no_owner": records.NoOwner,
    "ending": records.RequestEnding,
    "callback_kind": callbacks.KernelCallback,
    "work_kind": records.KernelWork,
    "span_says": records.SpanSays,
    "submitted": abi.Submitted,
    "frame_side": frames.FrameSide,
    "engine_event_kind": engine_events.EngineEvent,
    "step_state": engine_events.StepState,
    "nccl_family": nccl.RowFamily,
    "rdma_operation": rdma.Operation,
    "rdma_row_kind": rdma.RowKind,
    "rdma_unmatched": rdma.Unmatched,
    "verbs_event_kind": rdma.EventKind,
    "PY_EACH": python_layout.EntryRule,
    "THREAD_STATE_NONE": {"SLOT": python_process.SLOT, "DTV": python_process.DTV},
    # The first total of each family; what follows are its kinds.
    "total": {
        family.name: abi.TOTALS.index((family, 0))
        for family, kind in abi.TOTALS
        if not kind and family != abi.Family.COPY
    }
    | {"COPY": abi.TOTALS.index((abi.Family.COPY, 0))},
}
"""By the enumeration's name, or its first enumerator where it has none."""
_COUNTS = {
    "COPY_KINDS": len(abi.CopyKind),
    "MEMORY_TYPES": len(abi.MemoryType),
    "LOSS_COUNT": len(abi.Loss),
    "TABLE_COUNT": len(abi.Table),
    "TOTAL_COUNT": len(abi.TOTALS),
    "STOP_COUNT": len(stacks.Stop),
    "SUBMITTED_COUNT": len(abi.Submitted),
    "NO_OWNER_COUNT": len(records.NoOwner),
    "CALLBACK_KINDS": len(callbacks.KernelCallback),
    "FRAME_SIDES": len(frames.FrameSide),
    "RDMA_OPERATIONS": len(rdma.Operation),
    "SAMPLE_TYPES": max(abi.SampleType) + 1,
}
_CONSTANTS = {
    "KIND_HIP": abi.KIND_HIP,
    "VALUE_B_BITS": abi.VALUE_B_BITS,
    "NCCL_DATATYPES": len(nccl_names.DATATYPES),
    "NCCL_NO_DATATYPE": nccl.NO_DATATYPE,
    "NCCL_NO_REDUCTION": nccl.NO_REDUCTION,
    "NCCL_CUSTOM_REDUCTION": nccl.CUSTOM_REDUCTION,
    "NCCL_UNKNOWN_RANK": nccl.UNKNOWN_RANK,
    "NCCL_MOST_RANKS": nccl.MOST_RANKS,
    "NCCL_ID_BYTES": nccl.ID_BYTES,
    "NCCL_ARRIVAL_GROUPED": nccl.ARRIVAL_GROUPED,
    "NCCL_ARRIVAL_GROUP": nccl.ARRIVAL_GROUP,
    "DEVICE_UNKNOWN": abi.DEVICE_UNKNOWN,
    "ORDINALS": abi.ORDINALS,
    "BUCKET_ZERO": abi.BUCKET_ZERO,
    "BUCKET_NONE": abi.BUCKET_NONE,
    "PERIOD_PARTS": abi.PERIOD_PARTS,
    "BUSY_STREAMS": abi.BUSY_STREAMS,
    "DIRECTIONS": records.DIRECTIONS,
    "REQUEST_WORKS": records.REQUEST_WORKS,
    "REQUEST_HEAD": records.REQUEST_HEAD,
    "RESPONSE_HEAD": records.RESPONSE_HEAD,
    "REQUEST_AMBIGUOUS": records.AMBIGUOUS,
    "REQUEST_ENCRYPTED": records.ENCRYPTED,
    "REQUEST_HTTP2": records.HTTP2,
    "REQUEST_CALLBACK": callbacks.CALLBACK,
    "CALLBACK_NAME": callbacks.CALLBACK_NAME,
    "CALLBACK_MESSAGE": callbacks.CALLBACK_MESSAGE,
    "FRAME_GONE": frames.FRAME_GONE,
    "FRAME_PIECE": frames.FRAME_PIECE,
    "FRAME_TOLD_MOST": frames.FRAME_TOLD_MOST,
    "SPAN_TYPES": records.SPAN_TYPES,
    **{f"SPAN_{flag.name}": flag.value for flag in records.SpanFlag},
    "IDENTITY_ARGUMENTS": abi.IDENTITY_ARGUMENTS,
    "IDENTITY_ENVIRONMENT": abi.IDENTITY_ENVIRONMENT,
    "KERNEL_FORGOTTEN": kernel_handles._FORGOTTEN,
    "QPN_NONE": rdma.QPN_NONE,
    "STATE_UNKNOWN": rdma.STATE_UNKNOWN,
    "DEVICE_NAME": rdma.DEVICE_NAME,
    "VERBS_FUNCTIONS": rdma.FUNCTIONS,
    "ARGUMENT_NONE": abi.ARGUMENT_NONE,
    "LIBRARIES": abi.LIBRARIES,
    "CONTEXT_GREEN": abi.CONTEXT_GREEN,
    "RECORD_STEPS": abi.RECORD_STEPS,
    "RECORD_WAYS": abi.RECORD_WAYS,
    "MAPPING_MADE": loader._MADE,
    "MAPPING_NO_TABLE": loader._NO_TABLE,
    "MAPPING_FRAME_POINTERS": loader._FRAME_POINTERS,
    "EVAL_RANGES": loader._EVAL_RANGES,
    "PY_ABSENT": python_layout.ABSENT,
    "FRAME_KIND_SHIFT": stacks._KIND_SHIFT,
    "FRAME_OWNER_SHIFT": stacks._OWNER_SHIFT,
    "FRAME_CHECKSUM_A": stacks._CODE_BITS,
    "FRAME_CHECKSUM_B": stacks._CHECKSUM_SHIFT,
    **{
        name: value
        for name, value in vars(abi).items()
        if name.startswith(("CALL_", "FLAG_")) and isinstance(value, int)
    },
}
_OF_THE_KERNEL = {
    "ERROR_CODES": "larger codes are counted as 0, which Python reads as it is",
    "IDENTITY_NAMES": "IDENTITY.size is compared",
    "IDENTITY_NAME": "IDENTITY.size is compared",
    "NAME_SHORT": "a record says how long its name is",
    "NAME_LONG": "a record says how long its name is",
    "NAME_HUGE": "a record says how long its name is",
    "RECORDED_ARGUMENTS": "CALL_ARGUMENTS.size is compared",
    "RECORDED_BYTES": "CALL_ARGUMENTS.size is compared",
    "ORIGIN_WORDS": "ORIGIN.size is compared",
    "WALK_WORDS": "how many words the walker reads at a time",
    "MAX_FRAMES": "a sample says how many frames it has",
    "MAX_AHEAD": "a sample says how many addresses it has",
    "SAMPLED_CALLS": "struct sampled_thread is compared",
    "SAMPLED_DEVICES": "struct sampled_thread is compared",
    "SAMPLED_TYPES": "struct sampled_thread is compared",
    "PY_ASIDE": "thread states that take turns in one stack",
    "REQUEST_GONE": "whether its connection is closed is its ending",
    "REQUEST_CLOSED": "a request that is told is closed",
    "FAMILY_COUNT": "families that a table of the kernel's has room for",
    "TOTALS_OF_API": "half of TOTAL_COUNT",
}
"""What Python need not know, and why."""
_SIZES = {
    "frame_piece": frames.PIECE.size + frames.FRAME_PIECE,
    "arguments": abi.CALL_ARGUMENTS.size,
    "event": abi.EVENT.size,
    "nccl_row_key": nccl.ROW_KEY.itemsize,
    "nccl_signature": nccl.SIGNATURE.itemsize,
    "nccl_comm_key": nccl.COMM_KEY.itemsize,
    "nccl_comm": nccl.COMM.itemsize,
    "nccl_arrival": nccl.ARRIVAL.itemsize,
    "identity": abi.IDENTITY.size,
    "origin": abi.ORIGIN.size,
    "record_ways": abi.RECORD_WAY.size * abi.RECORD_WAYS,
    "running": abi.RUNNING.size,
    "py_layout": 80,
    "poll_window": rdma.WINDOW.size,
    "verbs_event": rdma.EVENT.size,
    "unwind_process": loader._PROCESS.size,
}


def _enumerations(text: str) -> dict[str, list[str]]:
    found = {}
    for name, body in re.findall(r"^enum (\w*) ?\{(.*?)\};", text, re.MULTILINE | re.DOTALL):
        names = re.findall(r"^\s*([A-Z]\w+)|[,{]\s*([A-Z]\w+)", "{" + re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL))
        members = [one or other for one, other in names]
        found[name or members[0]] = members
    return found


def _constants(text: str) -> list[str]:
    return [
        name for name in re.findall(r"^#define (\w+)[ \t]", text, re.MULTILINE) if not name.startswith("OTEL_GPU_ABI_")
    ]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a compiler makes of every number and structure of the headers."""
    if (compiler := shutil.which("cc") or shutil.which("clang")) is None:
        pytest.skip("there is no C compiler")
    names = [*_constants(_TEXT), *(member for members in _enumerations(_TEXT).values() for member in members)]
    place = tmp_path_factory.mktemp("border")
    lines = [f'printf("{name} %lld\\n", (long long)({name}));' for name in names]
    lines += [f'printf("{name} %lld\\n", (long long)sizeof(struct {name}));' for name in _SIZES]
    includes = "".join(f'#include "{header}"\n' for header in _HEADERS)
    (place / "all.c").write_text(
        f"#include <stdio.h>\n{includes}int main(void) {{\n" + "\n".join(lines) + "\nreturn 0; }\n"
    )
    subprocess.run([compiler, f"-I{_SOURCES}", "-o", place / "all", place / "all.c"], check=True)
    said = subprocess.run([place / "all"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in said.splitlines())}


def test_every_enumeration_is_pythons(values: dict[str, int]) -> None:
    enumerations = _enumerations(_TEXT)
    assert len(enumerations) > 15

    for name, members in enumerations.items():
        mirrored = _MIRRORED[name]
        expected = mirrored if isinstance(mirrored, Mapping) else {m.name: m.value for m in mirrored}
        found = {member: values[member] for member in members if member not in _COUNTS and member not in _OF_THE_KERNEL}
        common = _common_prefix(list(found))
        found = {member.removeprefix(common): value for member, value in found.items()}
        if name == "THREAD_STATE_NONE":
            assert found.pop("NONE") == 0
        assert found == expected, name


def test_every_constant_is_pythons_or_the_kernels_alone(values: dict[str, int]) -> None:
    counts = {m for members in _enumerations(_TEXT).values() for m in members if m in _COUNTS or m in _OF_THE_KERNEL}
    named = {*_constants(_TEXT), *counts}

    assert named == {*_CONSTANTS, *_COUNTS, *_OF_THE_KERNEL, "STRANGERS"}
    for name, value in {**_CONSTANTS, **_COUNTS}.items():
        assert values[name] == value, name
    assert values["STRANGERS"] % 2**64 == engine_events.STRANGERS


@pytest.mark.parametrize("name", _SIZES)
def test_structures_have_the_size_that_python_reads(name: str, values: dict[str, int]) -> None:
    assert values[name] == _SIZES[name]


def _common_prefix(names: list[str]) -> str:
    parts = [name.split("_") for name in names]
    common = 0
    while all(len(part) > common + 1 for part in parts) and len({part[common] for part in parts}) == 1:
        common += 1
    return "".join(f"{part}_" for part in parts[0][:common])
