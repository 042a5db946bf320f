/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is at an address, of which no table tells? */
#ifndef OTEL_GPU_UNWIND_CODE_BPF_H
#define OTEL_GPU_UNWIND_CODE_BPF_H

#include "unwind/walk.bpf.h"

#define VM_EXEC 4 /* include/linux/mm.h */
#define ENOENT 2

enum code {
	CODE_NONE,    /* nothing that could be executed */
	CODE_MADE,    /* without a file: made at run time */
	CODE_OF_FILE, /* or it could not be told */
};

static long note_code(struct task_struct *task, struct vm_area_struct *area, enum code *found)
{
	if (!bpf_core_field_exists(area->vm_flags) || area->vm_flags & VM_EXEC)
		*found = area->vm_file ? CODE_OF_FILE : CODE_MADE;
	return 0;
}

/* What is at pc, now: a JIT makes code all the time, and libraries are mapped before the agent hears of it. */
static __always_inline enum code code_at(const struct unwind *u, u64 pc)
{
	enum code found = CODE_NONE;
	long error = bpf_find_vma((void *)WALKED(u), pc, note_code, &found, 0);

	return error && error != -ENOENT ? CODE_OF_FILE : found;
}

/* Whether a near call ends these eight bytes, by its encodings on x86-64: what a word on the stack that is a return
 * address has before it, and one that only looks like it hardly ever. What goes through a register or memory is FF /2.
 * A global function, which the verifier looks at by itself: its branches would multiply the walk's states. */
__noinline int ends_with_call(u64 code)
{
	u32 c7 = code >> 56, c6 = code >> 48 & 0xff, c5 = code >> 40 & 0xff, c4 = code >> 32 & 0xff,
	    c3 = code >> 24 & 0xff, c2 = code >> 16 & 0xff, c1 = code >> 8 & 0xff;

	return c3 == 0xe8 ||						       /* a distance */
	       (c6 == 0xff && ((c7 & 0xf8) == 0xd0 || (c7 & 0xf8) == 0x10)) || /* a register, or what it points to */
	       (c5 == 0xff && ((c6 & 0xf8) == 0x50 || c6 == 0x14)) ||	       /* with a byte behind it */
	       (c4 == 0xff && c5 == 0x54) ||
	       (c2 == 0xff && ((c3 & 0xf8) == 0x90 || c3 == 0x15)) || /* with a word behind it */
	       (c1 == 0xff && (c2 == 0x94 || c2 == 0x14));
}

static __always_inline int follows_call(const struct unwind *u, u64 pc)
{
	u64 code;

	return !READ_WALKED(u, &code, sizeof(code), (void *)(pc - sizeof(code))) && ends_with_call(code);
}

#endif
