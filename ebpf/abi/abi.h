/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every struct and number that crosses between the kernel and otel_gpu/abi.py. Plain C, no kernel includes.
 * tests/unit/test_abi.py compares each offset with what the compiled objects say in their BTF, tests/unit/test_border.py
 * each number and size. */
#ifndef OTEL_GPU_ABI_ABI_H
#define OTEL_GPU_ABI_ABI_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

/* What a row counts; row.sum_a and row.sum_b are given behind each. */
enum family {
	FAMILY_LAUNCH = 1,   /* kernels: blocks in the grid, threads in a block */
	FAMILY_GRAPH_LAUNCH, /* graph launches: - , - */
	FAMILY_COPY,	     /* copies: bytes, - */
	FAMILY_MEMSET,	     /* memsets: bytes, - */
	FAMILY_ALLOC,	     /* allocations: bytes, - */
	FAMILY_FREE,	     /* frees: bytes, - */
	FAMILY_WAIT,	     /* blocking calls: nanoseconds, - */
	FAMILY_ERROR,	     /* failed calls; row_key.subject is the code: - , - */
	FAMILY_IDLE,	     /* gaps in which a device had nothing to do: nanoseconds, - */
	FAMILY_ELAPSED,	     /* times between events, as the driver measured them: nanoseconds, - */
	FAMILY_COUNT,
};

/* Copy kinds, in row_key.kind. The first five are cudaMemcpyKind. */
enum copy_kind {
	COPY_HOST_TO_HOST,
	COPY_HOST_TO_DEVICE,
	COPY_DEVICE_TO_HOST,
	COPY_DEVICE_TO_DEVICE,
	COPY_DEFAULT,
	COPY_PEER,
	COPY_KINDS,
};

/* Host memory on the host's side of a copy, in row_key.detail. */
enum host_memory {
	HOST_MEMORY_NONE,
	HOST_MEMORY_PAGEABLE,
	HOST_MEMORY_PINNED,
};

/* Memory types, in row_key.kind of allocations and frees. */
enum memory_type {
	MEMORY_DEVICE,
	MEMORY_HOST,
	MEMORY_MANAGED,
	MEMORY_REGISTERED,
	MEMORY_ASYNC,
	MEMORY_VIRTUAL,
	MEMORY_UNKNOWN, /* freed, but its allocation is not known */
	MEMORY_TYPES,
};

/* How a free came about, in row_key.detail. */
enum free_cause {
	FREE_CALLED,
	FREE_IMPLICIT,	/* the address came back from the driver while we held it for live */
	FREE_UNTRACKED, /* of an unknown allocation, for which there may have been no room */
};

/* What became of an allocation, in row_key.detail. */
enum allocation {
	ALLOCATION_LIVES,
	ALLOCATION_UNTRACKED, /* there was no room to remember it: it is in no sum of what lives */
};

/* Set in row_key.kind, and in kinds everywhere else, for what was asked of HIP and not of CUDA. */
#define KIND_HIP 0x80

#define DEVICE_UNKNOWN 0xff
#define ORDINALS 64	 /* devices of one program that are told apart; further ones are unknown */
#define ERROR_CODES 4096 /* larger ones are none of CUDA's or HIP's; they count as 0, which is no error */
#define BUCKET_ZERO 0	 /* the value was 0 */
#define BUCKET_NONE 0xff /* there is no such value */

/* One row of the count table. Buckets are OTLP's exponential histogram at scale 0, plus 2:
 * 1 holds the value 1, b holds (2^(b-2), 2^(b-1)]. */
struct row_key {
	u32 tgid;
	u32 incarnation; /* tells apart the programs that ran under one pid, see tell_apart() */
	u64 subject;	 /* kernel handle, graph, error code */
	u16 function;	 /* row of the hook table; of launches the handle's generation, see generation_of() */
	u8 family;
	u8 device;
	u8 kind;
	u8 detail;
	u8 bucket_a;
	u8 bucket_b;
};
_Static_assert(sizeof(struct row_key) == 24, "row_key crosses the border");

struct row {
	u64 count;
	u64 sum_a;
	u64 sum_b;
};
_Static_assert(sizeof(struct row) == 24, "row crosses the border");

/* A program: what a process runs from exec to exec, or to its end. */
struct program_key {
	u32 tgid;
	u32 incarnation;
};
_Static_assert(sizeof(struct program_key) == 8, "program_key crosses the border");

/* A live allocation. */
struct live_key {
	u32 tgid;
	u32 incarnation;
	u64 address; /* device or host pointer, or VMM handle */
};
_Static_assert(sizeof(struct live_key) == 16, "live_key crosses the border");

struct live {
	u64 size;
	u64 since_ns; /* CLOCK_MONOTONIC */
	u64 context;  /* with which it ends; 0 when it was made before we looked */
	u8 type;
	u8 device;
	u16 refs; /* of a VMM handle */
	u32 maps; /* how often it is mapped; its memory goes with the last reference and mapping */
};
_Static_assert(sizeof(struct live) == 32, "live crosses the border");

/* What is known of a device's work for a process. Times are CLOCK_MONOTONIC. */
struct busy_key {
	u32 tgid;
	u32 incarnation;
	u32 device;
	u32 pad;
};
_Static_assert(sizeof(struct busy_key) == 16, "busy_key crosses the border");

#define BATCH_PARTS 4 /* kinds of submissions that are told apart in one batch */

/* Submissions of one batch that do the same. */
struct batch_part {
	u64 subject; /* see PART_OF */
	u64 calls;
};

/* A kernel's handle, or what is none by its function. */
#define PART_OF(subject, function) ((subject) ?: 1ULL << 63 | (function))

/* All batches of a program on a device that did the same. */
struct batch_kind {
	struct busy_key key;
	struct batch_part parts[BATCH_PARTS]; /* in the order in which they came first */
};
_Static_assert(sizeof(struct batch_kind) == 80, "batch_kind crosses the border");

struct batch_sum {
	u64 batches;
	u64 upper_ns;
	u64 lower_ns;
};
_Static_assert(sizeof(struct batch_sum) == 24, "batch_sum crosses the border");

#define BUSY_STREAMS 8 /* in use at a time; work on more is known to be done only when all of the context's is */

struct busy_stream {
	u64 stream;
	u64 last;		  /* number of its latest submission; never the same again, whatever stream is here */
	u64 last_ns;		  /* entry of that one, or later; kept only when several threads use the device */
	u64 foreign_ns;		  /* of the latest one by another thread than tid */
	u64 done;		  /* as last when all of it is known to be done */
	u64 joined_ns;		  /* when it was last made to wait for another stream */
	u64 joined[BUSY_STREAMS]; /* up to which submission of each it waits */
	u32 tid;
	u32 pad;
};

struct busy {
	u64 first_ns;	   /* first submission */
	u64 idle_ns;	   /* certain gaps since then, but for the present one */
	u64 lower_ns;	   /* certainly busy */
	u64 idle_since_ns; /* the present gap, if submissions == idle_submissions; 0 for none */
	u64 idle_submissions;
	u64 submissions;
	u64 batch_first; /* of the present batch, or the last: submissions before it */
	u64 batch_opened_ns;
	u64 batch_lower_ns;	/* lower_ns before it */
	u64 sampled;		/* the latest submission whose stack was taken, or a little later */
	u64 noted;		/* submissions of the present batch that are in its kind's parts */
	u64 noting;		/* somebody is at them */
	struct batch_kind kind; /* what the present batch does, as far as it is noted */
	u64 opened_ns;		/* end of the last gap */
	u64 covered_ns;		/* lower_ns has what lies before */
	u64 clean_ns;		/* nothing submitted since waits for the host or other devices; ~0: something does */
	u64 seen_ns;		/* nothing was submitted since, while the number is still: */
	u64 seen_submissions;
	u64 untracked_ns; /* latest submission to a stream that found no place; 0 when it is done */
	u64 context;
	u32 open;  /* 0: the next submission ends a gap */
	u32 mixed; /* several contexts use the device */
	u32 tid;   /* the only thread that uses the device; 0: there are several */
	u32 pad;
	struct busy_stream streams[BUSY_STREAMS];
};
_Static_assert(sizeof(struct busy) == 248 + BUSY_STREAMS * (56 + 8 * BUSY_STREAMS), "busy crosses the border");

/* What went wrong in the kernel, one counter each. */
enum loss {
	LOSS_ROWS_FULL,	    /* counted in the overflow rows instead of the table */
	LOSS_OVERFLOW_FULL, /* counted in the program's totals only */
	LOSS_CALLS_FULL,    /* a call's return could not be awaited */
	LOSS_LIVE_FULL,	    /* an allocation, or a mapping of one, could not be remembered */
	LOSS_READ_FAILED,   /* the target's memory was not readable */
	LOSS_CAPTURES_FULL, /* a capturing stream or event could not be remembered */
	LOSS_EVENTS_FULL,   /* the ring buffer was full */
	LOSS_BUSY_FULL,	    /* a device's busy time could not be followed */
	LOSS_PINNED_FULL,   /* page-locked memory could not be remembered */
	LOSS_CONTEXTS_FULL, /* on which device a thread works could not be remembered */
	LOSS_GRAPHS_FULL,   /* what an executable graph holds could not be remembered */
	LOSS_NAMES_FULL,    /* which kernel a handle is could not be remembered */
	LOSS_PROGRAMS_FULL, /* there was no room for the program: nothing of the call was counted */
	LOSS_IMPLAUSIBLE,   /* a size that no memory has was taken for none */
	LOSS_COUNT,
};

/* The tables that programs share, see shares.bpf.h. */
enum table {
	TABLE_ROWS,
	TABLE_OVERFLOW,
	TABLE_THREADS,
	TABLE_LIVE,
	TABLE_MAPPED,
	TABLE_PINNED,
	TABLE_BUSY,
	TABLE_BATCH_KINDS,
	TABLE_RECORDED,
	TABLE_CAPTURING,
	TABLE_CAPTURED_KERNELS,
	TABLE_GRAPHS,
	TABLE_CONTEXTS,
	TABLE_PRIMARIES,
	TABLE_KERNELS,
	TABLE_SAMPLED_THREADS,
	TABLE_STAYS,
	TABLE_BATCH_SAMPLERS,
	TABLE_TENSORS,
	TABLE_TENSOR_GROUPS,
	TABLE_COUNT,
};

/* What a program's calls come to when not even the overflow rows have room: by family and, where the family has them,
 * by row_key.kind; what was asked of HIP behind what was asked of CUDA. */
enum total {
	TOTAL_LAUNCH,
	TOTAL_GRAPH_LAUNCH,
	TOTAL_COPY,
	TOTAL_MEMSET = TOTAL_COPY + COPY_KINDS,
	TOTAL_ALLOC,
	TOTAL_FREE = TOTAL_ALLOC + MEMORY_TYPES,
	TOTAL_WAIT = TOTAL_FREE + MEMORY_TYPES,
	TOTAL_ERROR,
	TOTAL_IDLE,
	TOTAL_ELAPSED,
	TOTALS_OF_API,
	TOTAL_COUNT = 2 * TOTALS_OF_API,
};

/* How much of a ring buffer a program fills, see may_send(). */
struct ring_use {
	u64 began;  /* where in the ring its present stretch begins */
	u64 before; /* bytes that it sent in the stretch before */
	u64 sent;   /* and in this one */
};

/* A program that has entries in tables. */
struct program {
	u64 start_ns;	/* when its process began, by CLOCK_BOOTTIME */
	u64 executions; /* how often that had called exec */
	u64 ended_ns;	/* CLOCK_MONOTONIC; 0 while it runs */
	u64 unloads;	/* how often it unloaded something, whose handles may be other kernels' since */
	char comm[16];
	u32 captures; /* that go on */
	u32 reused;   /* handles that became other kernels' */
	u8 is_announced;
	u8 holds_graphs; /* it built graphs in which work waits for the host */
	u16 pad;
	u32 parent; /* its process's parent when it showed itself; 0 when that is not to be seen from here */
	u32 used[TABLE_COUNT];
	u64 lost[LOSS_COUNT];
	u64 profile_lost[LOSS_COUNT]; /* likewise, of profile.bpf.c */
	struct ring_use events;
	struct ring_use samples;
	struct row totals[TOTAL_COUNT];
};

/* What an event says. a, b, c and d are given behind each. */
enum event_type {
	EVENT_NAMED = 1,    /* a kernel got its name: handle, module, address of the name, KERNEL_NOW ; then the name */
	EVENT_FIRST_LAUNCH, /* a row of launches was made: handle, row_key.kind, -, - ; then struct origin */
	EVENT_CAPTURED,	    /* a capture recorded a node: capture, node type, handle, bytes or version, NODE_DETAIL */
	EVENT_CALL, /* a call succeeded: function, what it wrote to its out parameter, id, device ; then struct arguments */
	/* A batch of which stacks were taken is over. tid is the device, time_ns the end. Submissions before it, and up
	 * to its end; when it was opened, its lower bound. */
	EVENT_BATCH,
	/* A program shows itself for the first time: when its process began (CLOCK_BOOTTIME), how often that had called
	 * exec, its parent, whether the way to its executable was walked ; then struct identity. */
	EVENT_PROGRAM,
};

/* Node types, as CUgraphNodeType. */
enum node_type {
	NODE_KERNEL = 0,
	NODE_COPY = 1,
	NODE_MEMSET = 2,
	NODE_GRAPH = 4, /* launched while its stream was captured: a child with what that version executes */
};

/* EVENT_CAPTURED's d: a kernel's buckets (grid, block << 8), a copy's kind and host memory (kind, host << 8). */
#define NODE_DETAIL(low, high) ((u64)(low) | (u64)(high) << 8)

struct event {
	u32 type;
	u32 tgid;
	u32 incarnation;
	u32 tid;
	u64 time_ns;
	u64 a, b, c, d;
};
_Static_assert(sizeof(struct event) == 56, "event crosses the border");

#define IDENTITY_NAMES 1024 /* bytes behind which no other name begins */
#define IDENTITY_NAME 256   /* of one directory or control group, NUL included */
#define IDENTITY_ARGUMENTS 1024
#define IDENTITY_ENVIRONMENT 8192

/* Names on a way up a tree, the lowest first, each ended by NUL. */
struct names {
	char text[IDENTITY_NAMES + IDENTITY_NAME];
};

/* Who a program is, as the kernel knows it. */
struct identity {
	char comm[16];
	u32 path_bytes;	     /* the last name only, where no way was walked */
	u32 groups_bytes;    /* none there */
	u32 arguments_bytes; /* as many as there are; what does not fit is cut, what is not readable is zeros */
	u32 environment_bytes;
	struct names path;   /* of its executable */
	struct names groups; /* control groups: of version 2 or, where that has none, of a controller */
	char arguments[IDENTITY_ARGUMENTS];
	char environment[IDENTITY_ENVIRONMENT];
};
_Static_assert(sizeof(struct identity) == 32 + 2 * 1280 + 1024 + 8192, "identity crosses the border");
struct program_event {
	struct event event;
	struct identity identity;
};

/* Which program runs under a pid now. */
struct running {
	u32 tgid;
	u32 incarnation;
	u64 start_ns;
	u64 executions;
};
_Static_assert(sizeof(struct running) == 24, "running crosses the border");

/* Which kernel a handle is from now on: its generation, and whether it was another one before. */
#define KERNEL_NOW(generation, is_other) ((u32)(u16)(generation) | (u32)(is_other) << 16)
#define KERNEL_FORGOTTEN                                                                                               \
	(1 << 17) /* there was no room to remember the name: nothing tells whether it was another one before */

#define NAME_SHORT 200	/* so that most names fit a record of 256 bytes */
#define NAME_LONG 4096	/* and nearly all of the rest this one */
#define NAME_HUGE 16384 /* longer ones are cut */

struct short_name {
	struct event event;
	char name[NAME_SHORT];
};
struct long_name {
	struct event event;
	char name[NAME_LONG];
};
struct huge_name {
	struct event event;
	char name[NAME_HUGE];
};

#define RECORDED_ARGUMENTS 6
#define RECORDED_BYTES 256
struct arguments {
	u64 values[RECORDED_ARGUMENTS];
	u8 data[RECORDED_BYTES]; /* what one of them pointed to, zeros where it was not readable */
};
struct call_event {
	struct event event;
	struct arguments arguments;
};

/* Where a launch came from: what the kernel's name can be told by when nobody saw it being loaded. */
#define ORIGIN_WORDS 256
struct origin {
	u64 ip, sp, fp;
	u64 saved[5];		 /* callee-saved registers: rbx, r12-r15; x19-x23 */
	u64 stack[ORIGIN_WORDS]; /* from sp on; zeros where it was not readable */
};
struct first_launch {
	struct event event;
	struct origin origin;
};

/* The attach cookie: what a program must know about the function it sits on. */
#define COOKIE_FUNCTION(c) ((u16)(c))	 /* row of the hook table */
#define COOKIE_KIND(c) ((u8)((c) >> 16)) /* copy kind, memory type */
#define COOKIE_FLAGS(c) ((u8)((c) >> 24))
#define COOKIE_STREAM(c) ((u8)((c) >> 32) & 15)	 /* argument number of the stream */
#define COOKIE_HOST(c) ((u8)((c) >> 36) & 15)	 /* argument number of the host pointer */
#define COOKIE_SIZE(c) ((u8)((c) >> 40) & 15)	 /* argument number of the size in elements, or of the struct */
#define COOKIE_SIZE2(c) ((u8)((c) >> 44) & 15)	 /* of its second factor */
#define COOKIE_OUT(c) ((u8)((c) >> 48) & 15)	 /* of the address, or of where it will be written */
#define COOKIE_SHIFT(c) ((u8)((c) >> 52) & 15)	 /* log2 of the element size */
#define COOKIE_KIND_AT(c) ((u8)((c) >> 56) & 15) /* argument number of the copy kind, where it is one */
#define ARGUMENT_NONE 15

/* What a waiting or asking call is about, in its kind. */
enum wait_kind {
	WAIT_CONTEXT,
	WAIT_STREAM,
	WAIT_EVENT,
};

#define CALL_ADDS_NODE 2	/* kind of a recorded call: its data begins with the node's type */
#define CALL_RESETS_PRIMARY 3	/* kind of a recorded call: its id is the device's primary context, 0 if unknown */
#define CALL_RELEASES_PRIMARY 4 /* the same, when that was the last reference; else the call is not told of */
#define CALL_ENDS_CAPTURE 1	/* kind of a recorded call: its stream's capture is over, even if it fails */
#define CALL_UNLOADS 6		/* kind of a recorded call: handles of kernels may be given out again */
#define CALL_ALIASES 5		/* kind of a recorded call: what it returns is the kernel in its second argument */
#define CALL_DESTROYS_EXEC 7	/* kind of a recorded call: the executable graph in its first argument is no more */

#define FLAG_PER_THREAD 1 /* stream 0 means the thread's own (_ptsz, _ptds) */
#define FLAG_DIRECT 2	  /* the address is an argument, not a result */
#define FLAG_PITCHED 4	  /* the size is *pitch times a factor, known at return */
#define FLAG_RESULT 8	  /* the out parameter points to data, not to a handle */
#define FLAG_EXEC 16	  /* an executable graph changes: its launches count under a new id */
#define FLAG_PUSH 32	  /* the context becomes current as well */
#define FLAG_PINS 64	  /* the memory is page-locked host memory */
#define FLAG_INNER 128	  /* another function of the same number may be this call's caller, and counts it */

/* ---- stacks ---- */

/* One row of an unwinding table, see otel_gpu/eh_frame/rows.py. */
struct unwind_row {
	u32 pc;
	s16 cfa_offset;
	u8 kind;
	s8 fp_offset;
};
_Static_assert(sizeof(struct unwind_row) == 8, "unwind_row crosses the border");

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

/* Where a CPython keeps its frames, see otel_gpu/cpython/layout.py. */
#define PY_ABSENT 0xffff
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
enum { PY_EACH, PY_IS_ENTRY, PY_SHIM };

#define EVAL_RANGES 4
enum { THREAD_STATE_NONE, THREAD_STATE_SLOT, THREAD_STATE_DTV };

struct unwind_process {
	u32 first_mapping;
	u32 mappings;
	u32 thread_state; /* where its pointer is: at thread_offset from the thread's base, or in a DTV block */
	u32 eval_ranges;
	s64 thread_offset;
	u64 thread_module; /* DTV: number of the module */
	u64 interpreters;  /* where the pointers to the newest and to the main interpreter are */
	struct {
		u64 start, end;
	} eval[EVAL_RANGES];
	struct py_layout py;
};

/* Why a stack ends where it ends. */
enum stop {
	STOP_NONE,
	STOP_OUTERMOST,	      /* it is complete */
	STOP_FULL,	      /* deeper than MAX_FRAMES */
	STOP_NO_MAPPING,      /* an address in no known mapping */
	STOP_NO_TABLE,	      /* the mapping's table is not there, or not yet */
	STOP_NO_ROW,	      /* no unwinding information for the address */
	STOP_UNSUPPORTED,     /* a rule that rows cannot say */
	STOP_UNREADABLE,      /* stack memory could not be read */
	STOP_STUCK,	      /* the stack pointer would not rise */
	STOP_CHAIN_ENDED,     /* more eval loops than Python frames: a greenlet */
	STOP_FRAME_POINTER,   /* code without tables and without frame pointers */
	STOP_UNKNOWN_PROCESS, /* the agent has yet to learn of the process */
	STOP_NO_CODE,	      /* the return address leads to no code: the callers are unknown */
	STOP_STATES,	      /* more interpreters or thread states than are looked at */
	STOP_NO_OWNER,	      /* an eval loop of no interpreter's thread state */
	STOP_FRAMES_LEFT,     /* fewer eval loops than Python frames */
	STOP_COUNT,
};

enum frame_kind {
	FRAME_NATIVE = 1, /* a: address, b: file; not the leaf: a return address */
	FRAME_PYTHON = 2, /* see struct frame */
	FRAME_EXACT = 3,  /* as FRAME_NATIVE, but the very instruction */
	FRAME_MADE = 4,	  /* as FRAME_NATIVE, of code without a file */
};
#define FRAME_KIND_SHIFT 56
#define FRAME_OWNER_SHIFT 48

/* A native frame: a is the address, b is kind << 56 | file.
 * A Python frame: a is the code object, with the upper half of its checksum in the 16 bits that no address of a program
 * uses; b is kind << 56 | owner << 48 | the checksum's lower half << 32 | the instruction: an int f_lasti as it
 * is, or bytes from the first code unit. */
struct frame {
	u64 a;
	u64 b;
};
#define FRAME_CHECKSUM_A 48
#define FRAME_CHECKSUM_B 32

#define WALK_WORDS 16
#define MAX_FRAMES 512 /* CPython up to 3.10 has four native frames for each Python frame */

enum sample_type {
	SAMPLE_LAUNCH = 1,    /* value: launches; subject: the kernel's handle */
	SAMPLE_WAIT,	      /* value: ns; subject: row of the hook table */
	SAMPLE_COPY,	      /* value: bytes; subject: row of the hook table */
	SAMPLE_ALLOC,	      /* value: bytes; subject: the address */
	SAMPLE_FREE,	      /* subject: the address; no stack */
	SAMPLE_CPU,	      /* value: 1; subject: 1 when the kernel ran for it */
	SAMPLE_OFF_CPU,	      /* value: ns */
	SAMPLE_BACKWARD,      /* the thread begins to wait for PyTorch's autograd engine */
	SAMPLE_BACKWARD_DONE, /* it has returned from there; no stack */
	SAMPLE_TENSOR,	      /* value: bytes; subject: the group of tensors that the stack stands for */
	SAMPLE_SUBMISSION,    /* value: WORK_AT; subject: the kernel's handle, 0 for what is none */
	SAMPLE_TYPES,
};

/* Who is asked to look at work that was submitted; what is submitted says where a kernel's handle is. */
enum submitted {
	SUBMITTED_FIRST,  /* argument 0 is the handle */
	SUBMITTED_SECOND, /* argument 1 is */
	SUBMITTED_OTHER,  /* it is no kernel */
	SUBMITTED_COUNT,
};

/* Which of its process's submissions to which device. */
#define WORK_AT(device, number) ((u64)(device) << 56 | (number))

/* A call that goes on, and what is known of it. */
struct entered {
	u64 start_ns;
	u64 size;
	u64 address;  /* of calls that wait: the stack pointer at their entry */
	u64 pitch_at; /* likewise the frame pointer */
	u32 function; /* its number and 1; 0: there is no call here */
	u32 waits;
};
_Static_assert(sizeof(struct entered) == 40, "entered crosses the border");

/* What a thread did since its last stack of one type. */
struct sampler {
	u64 window_start_ns;
	u64 value;     /* since the last stack */
	u32 calls;     /* since the last stack */
	u32 in_window; /* calls in this window */
	u32 period;    /* every how many calls a stack is taken, on average */
	u32 countdown;
	u64 group;     /* of tensors; 0 until the next is made */
	u32 recording; /* to which value and calls belong */
	u32 device;    /* of submissions */
};
_Static_assert(sizeof(struct sampler) == 48, "sampler crosses the border");

#define SAMPLED_CALLS 4	  /* a power of two; functions that may call each other */
#define SAMPLED_DEVICES 4 /* a power of two; that a thread may use in turn without a loss of detail */
#define SAMPLED_TYPES 6	  /* see sampler_at() */

/* A thread of which stacks are taken. */
struct sampled_thread {
	u64 born_ns;
	u32 tgid;
	u32 incarnation;
	u32 tid;
	u32 pad;
	struct entered entered[SAMPLED_CALLS];
	struct sampler samplers[SAMPLED_TYPES];
	struct sampler submissions[SAMPLED_DEVICES];
};

/* What no stack stands for, of threads that have ended, or which found no room; by program. */
struct remainder_key {
	u32 tgid;
	u32 incarnation;
	u32 type; /* enum sample_type */
	u32 device;
};
struct remainder {
	u64 value;
	u64 calls;
	u64 recording;
};

/* Whom the programs of resting.bpf.c are to look at. */
struct asked {
	u32 tgid; /* in the agent's pid namespace */
	u32 pad;
	u64 min_ns; /* shorter stays off the CPU are not told */
};
_Static_assert(sizeof(struct asked) == 16, "asked crosses the border");

/* Tensors made by one thread from one stack on to the next: they are charged to the latter. */
struct tensor_group {
	u64 bytes; /* that live */
	u32 tgid;
	u32 incarnation;
	u32 closed; /* its stack is taken: no tensor joins it any more */
	u32 pad;
};
_Static_assert(sizeof(struct tensor_group) == 24, "tensor_group crosses the border");

/* What is still to come of a thread state's Python frames. */
struct py_cursor {
	u64 state;
	u64 frame;  /* the innermost; 0: the chain has ended */
	u64 cframe; /* up to 3.12: what marks its eval activation */
};

/* Where the search for a thread state is; of no use to the agent, but the verifier does not follow values in here. */
#define PY_ASIDE 4 /* thread states that take turns in one stack, but for the present one */
struct py_search {
	u64 interp;
	u64 next; /* thread state */
	u32 next_aside;
	u32 looked_at;
	u32 swapped; /* which one laid aside has changed places with the one that is tried */
	u32 is_fresh;
	struct py_cursor aside[PY_ASIDE];
};

/* Where a walk is. */
struct unwind_state {
	u64 pc, sp, fp;
	struct py_cursor here;
	u64 low;	 /* the stack pointer in the activation that was left; sp is then its end */
	u64 marker;	 /* what lies in the stack of the activation whose frames were taken; 0: not known */
	u64 group_frame; /* as here.frame, and the sample's frames, were before these */
	u64 trampoline; /* what lies in the stack as the return address of calls whose return is probed; 0: there are none */
	u32 group_at;
	u32 activations; /* of the eval loop, so far */
	u32 is_left;	 /* the activation is left already: no need to do so when its frames are taken */
	u32 interpreters;
	u32 mapping;   /* the last one found, absolute: calls mostly stay in one file */
	u32 is_return; /* pc is a return address: the call is before it */
	u32 phase;
	u32 pad;
};

struct walk_words {
	u64 word[WALK_WORDS];
};

struct stack_sample {
	u32 type;
	u32 tgid;
	u32 incarnation;
	u32 tid;
	u64 time_ns;
	u64 value;
	u64 count; /* how many calls it stands for */
	u64 subject;
	u16 function;
	u16 stop; /* enum stop */
	u32 frames;
	struct frame frame[MAX_FRAMES]; /* leaf first */
	/* What only the walk needs. Here, because its own stack is small, and because the verifier follows what stands
	 * there: it would look at a walk's code once for every combination of values. */
	struct unwind_state at;
	struct py_search search;
	struct walk_words words; /* of a Python frame, or of the stack */
};

#endif
