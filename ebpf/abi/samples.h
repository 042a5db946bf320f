/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What stacks are taken for, and what is kept of the threads they are taken of. */
#ifndef OTEL_GPU_ABI_SAMPLES_H
#define OTEL_GPU_ABI_SAMPLES_H

#include "abi/types.h"

/* What a stack was taken for, and what a sample then says. */
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
	SAMPLE_THREAD,	      /* value: enum thread_activity; what the agent asked for */
	SAMPLE_TYPES,
};

/* What a thread did when it was looked at. */
enum thread_activity {
	THREAD_BLOCKED = 1,
	THREAD_READY,	/* to run, without a CPU */
	THREAD_RUNNING, /* its registers are on a CPU: it comes without a stack */
};

/* Who is asked to look at work that was submitted; what is submitted says where a kernel's handle is. */
enum submitted {
	SUBMITTED_FIRST,  /* argument 0 is the handle */
	SUBMITTED_SECOND, /* argument 1 is */
	SUBMITTED_OTHER,  /* it is no kernel */
	SUBMITTED_COUNT,
};

/* Which of its process's submissions to which device: the device is above these bits. */
#define WORK_DEVICE_SHIFT 56
#define WORK_AT(device, number) ((u64)(device) << WORK_DEVICE_SHIFT | (number))

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
	u32 exec_id;
	u32 tid;
	u32 pad;
	struct entered entered[SAMPLED_CALLS];
	struct sampler samplers[SAMPLED_TYPES];
	struct sampler submissions[SAMPLED_DEVICES];
};

/* What no stack stands for, of threads that have ended, or which found no room; by program. */
struct remainder_key {
	u32 tgid;
	u32 exec_id;
	u32 type; /* enum sample_type */
	u32 device;
};
struct remainder {
	u64 value;
	u64 calls;
	u64 recording;
};

/* Whom the programs of profile/blocked.bpf.c are to look at. */
struct asked {
	u32 tgid; /* in the agent's pid namespace */
	u32 pad;
	u64 min_ns; /* shorter waits off the CPU are not told */
};
_Static_assert(sizeof(struct asked) == 16, "asked crosses the border");

/* Tensors made by one thread from one stack on to the next: they are charged to the latter. */
struct tensor_group {
	u64 bytes; /* that live */
	u32 tgid;
	u32 exec_id;
	u32 closed; /* its stack is taken: no tensor joins it any more */
	u32 pad;
};
_Static_assert(sizeof(struct tensor_group) == 24, "tensor_group crosses the border");

#endif
