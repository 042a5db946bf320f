/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a stack is walked by: rows, mappings, where a CPython keeps its frames. */
#ifndef OTEL_GPU_ABI_UNWINDING_H
#define OTEL_GPU_ABI_UNWINDING_H

#include "abi/types.h"

/* One row of an unwinding table, see otel_gpu/stacks/eh_frame/rows.py. */
struct unwind_row {
	u32 pc;
	s16 cfa_offset;
	u8 kind;
	s8 fp_offset;
};
_Static_assert(sizeof(struct unwind_row) == 8, "unwind_row crosses the border");

/* How the caller's frame is found, see otel_gpu/stacks/eh_frame/rows.py. */
enum row_kind {
	ROW_END,
	ROW_SP,
	ROW_FP,
	ROW_PLT,
	ROW_UNSUPPORTED,
	ROW_DEREF_SP,
	ROW_DEREF_FP,
	ROW_SIGNAL,
	ROW_OUTERMOST,
	ROW_SP_LARGE,
	ROW_UNREAD,
};

/* An executable mapping of a process. Each process has a run of them in one array, sorted by start. */
struct unwind_mapping {
	u64 start;
	u64 end;
	u64 bias; /* address - bias is what the rows' pc are compared with */
	u32 first_row;
	u32 rows; /* 0: no table */
	u32 file; /* the agent's number for the file */
	u32 flags;
};
_Static_assert(sizeof(struct unwind_mapping) == 40, "unwind_mapping crosses the border");
#define MAPPING_MADE 1		 /* code without a file, made at run time: follow frame pointers */
#define MAPPING_NO_TABLE 2	 /* there is none, and will be none */
#define MAPPING_FRAME_POINTERS 4 /* its code keeps them */

#define PY_ABSENT 0xffff /* an offset that this version does not have */

/* Where a CPython keeps its frames, see otel_gpu/stacks/cpython/layout.py. */
struct py_layout {
	u16 minor;
	u16 tss_kind;
	u32 tss_offset;
	u16 tss_block, runtime_interpreters, interp_next, interp_threads, tstate_next, tstate_interp, tstate_thread_id,
		tstate_native_id, tstate_frame, tstate_cframe, cframe_frame, cframe_previous, frame_code,
		frame_previous, frame_instr, frame_instr_size, frame_owner, frame_is_entry, entry_rule, shim_owners,
		tag_mask, marker_to_cfa, object_type, code_bytecode, code_first_traceable, code_argcount, code_kwonly,
		code_flags, code_first_line, code_filename, code_name, code_line_table, str_ascii, str_other,
		lasti_unit;
	u16 pad;
};
_Static_assert(sizeof(struct py_layout) == 80, "py_layout crosses the border");
/* How the Python frame is known with which an activation of the evaluation loop began. */
enum entry_rule {
	PY_EACH,
	PY_IS_ENTRY,
	PY_SHIM,
};

#define EVAL_RANGES 4 /* pieces of the evaluation loop's code that are told apart */
/* How the pointer to a thread's state is found. */
enum thread_state_place {
	THREAD_STATE_NONE,
	THREAD_STATE_SLOT,
	THREAD_STATE_DTV,
};

/* Code of CPython's evaluation loop. */
struct eval_range {
	u64 start;
	u64 end;
};

/* What a process's stacks are walked by. */
struct unwind_process {
	u32 first_mapping;
	u32 mappings;
	u32 thread_state; /* where its pointer is: at thread_offset from the thread's base, or in a DTV block */
	u32 eval_ranges;
	s64 thread_offset;
	u64 thread_module; /* DTV: number of the module */
	u64 interpreters;  /* where the pointers to the newest and to the main interpreter are */
	struct eval_range eval[EVAL_RANGES];
	struct py_layout py;
};

#endif
