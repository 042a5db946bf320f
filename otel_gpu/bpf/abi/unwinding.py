"""What a stack is walked by: rows, mappings, where a CPython keeps its frames.

Generated from ebpf/abi/unwinding.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np

UNWIND_ROW = np.dtype(
    [
        ("pc", "<u4"),
        ("cfa_offset", "<i2"),
        ("kind", "u1"),
        ("fp_offset", "i1"),
    ]
)
"""One row of an unwinding table, see otel_gpu/stacks/eh_frame/rows.py."""


class RowKind(enum.IntEnum):
    """How the caller's frame is found, see otel_gpu/stacks/eh_frame/rows.py."""

    END = 0
    SP = 1
    FP = 2
    PLT = 3
    UNSUPPORTED = 4
    DEREF_SP = 5
    DEREF_FP = 6
    SIGNAL = 7
    OUTERMOST = 8
    SP_LARGE = 9
    UNREAD = 10


UNWIND_MAPPING = np.dtype(
    [
        ("start", "<u8"),
        ("end", "<u8"),
        ("bias", "<u8"),  # address - bias is what the rows' pc are compared with
        ("first_row", "<u4"),
        ("rows", "<u4"),  # 0: no table
        ("file", "<u4"),  # the agent's number for the file
        ("flags", "<u4"),
    ]
)
"""An executable mapping of a process. Each process has a run of them in one array, sorted by start."""
MAPPING_MADE = 1
"""Code without a file, made at run time: follow frame pointers."""
MAPPING_NO_TABLE = 2
"""There is none, and will be none."""
MAPPING_FRAME_POINTERS = 4
"""Its code keeps them."""
PY_ABSENT = 0xFFFF
"""An offset that this version does not have."""
PY_LAYOUT = np.dtype(
    [
        ("minor", "<u2"),
        ("tss_kind", "<u2"),
        ("tss_offset", "<u4"),
        ("tss_block", "<u2"),
        ("runtime_interpreters", "<u2"),
        ("interp_next", "<u2"),
        ("interp_threads", "<u2"),
        ("tstate_next", "<u2"),
        ("tstate_interp", "<u2"),
        ("tstate_thread_id", "<u2"),
        ("tstate_native_id", "<u2"),
        ("tstate_frame", "<u2"),
        ("tstate_cframe", "<u2"),
        ("cframe_frame", "<u2"),
        ("cframe_previous", "<u2"),
        ("frame_code", "<u2"),
        ("frame_previous", "<u2"),
        ("frame_instr", "<u2"),
        ("frame_instr_size", "<u2"),
        ("frame_owner", "<u2"),
        ("frame_is_entry", "<u2"),
        ("entry_rule", "<u2"),
        ("shim_owners", "<u2"),
        ("tag_mask", "<u2"),
        ("marker_to_cfa", "<u2"),
        ("object_type", "<u2"),
        ("code_bytecode", "<u2"),
        ("code_first_traceable", "<u2"),
        ("code_argcount", "<u2"),
        ("code_kwonly", "<u2"),
        ("code_flags", "<u2"),
        ("code_first_line", "<u2"),
        ("code_filename", "<u2"),
        ("code_name", "<u2"),
        ("code_line_table", "<u2"),
        ("str_ascii", "<u2"),
        ("str_other", "<u2"),
        ("lasti_unit", "<u2"),
        ("pad", "<u2"),
    ]
)
"""Where a CPython keeps its frames, see otel_gpu/stacks/cpython/layout.py."""


class EntryRule(enum.IntEnum):
    """How the Python frame is known with which an activation of the evaluation loop began."""

    EACH = 0
    IS_ENTRY = 1
    SHIM = 2


EVAL_RANGES = 4
"""Pieces of the evaluation loop's code that are told apart."""


class ThreadStatePlace(enum.IntEnum):
    """How the pointer to a thread's state is found."""

    NONE = 0
    SLOT = 1
    DTV = 2


EVAL_RANGE = np.dtype(
    [
        ("start", "<u8"),
        ("end", "<u8"),
    ]
)
"""Code of CPython's evaluation loop."""
UNWIND_PROCESS = np.dtype(
    [
        ("first_mapping", "<u4"),
        ("mappings", "<u4"),
        ("thread_state", "<u4"),  # where its pointer is: at thread_offset from the thread's base, or in a DTV block
        ("eval_ranges", "<u4"),
        ("thread_offset", "<i8"),
        ("thread_module", "<u8"),  # DTV: number of the module
        ("interpreters", "<u8"),  # where the pointers to the newest and to the main interpreter are
        ("eval", EVAL_RANGE, (4,)),
        ("py", PY_LAYOUT),
    ]
)
"""What a process's stacks are walked by."""
