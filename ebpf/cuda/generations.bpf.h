/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which kernel is a handle? Another one, perhaps, after its module was unloaded and the driver gave the handle out again.
 * Launches count under the handle and its generation, which is a new one each time the handle gets another name. */
#ifndef OTEL_GPU_CUDA_GENERATIONS_BPF_H
#define OTEL_GPU_CUDA_GENERATIONS_BPF_H

#include "abi/events.h"
#include "abi/programs.h"
#include "cuda/device.bpf.h"

#define UNNAMED (1ULL << 63)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct context_key); /* the handle in place of a context */
	__type(value, struct kernel);
} kernels SEC(".maps");

/* How many handles have become other kernels', in the programs that share a place: where none has, a launch pays for no
 * look-up. Given back when a program ends. */
volatile u32 reused[PLACES] = {};

static __always_inline volatile u32 *reused_by(u32 exec_id)
{
	return place_of_program(reused, exec_id);
}

static __always_inline struct kernel *kernel_of(const struct caller *who, u64 handle)
{
	struct context_key key = { who->tgid, who->exec_id, handle };

	return bpf_map_lookup_elem(&kernels, &key);
}

static __always_inline u16 generation_of(const struct caller *who, u64 handle)
{
	struct kernel *kernel = *reused_by(who->exec_id) ? kernel_of(who, handle) : NULL;

	return kernel ? kernel->generation : 0;
}

static __always_inline u64 unloads_of(const struct caller *who)
{
	struct program *program = program_of(who);

	return program ? program->unloads : 0;
}

static __always_inline void note_unload(const struct caller *who)
{
	struct program *program = program_of(who);

	if (program)
		__sync_fetch_and_add(&program->unloads, 1);
}

static __always_inline int learn_kernel(const struct caller *who, u64 handle, u64 mark)
{
	struct context_key key = { who->tgid, who->exec_id, handle };
	struct kernel fresh = { .mark = mark };

	if (KEEP_IN(kernels, TABLE_KERNELS, who, &key, &fresh))
		return 1;
	lose(LOSS_NAMES_FULL);
	return 0;
}

/* What a kernel is that was launched: one that was named, one that nobody saw being named, or one that will not be told from
 * others that get its handle. */
enum seen_kernel {
	SEEN_NOT_KEPT,
	SEEN_NAMED,
	SEEN_UNNAMED,
};

RARE int kernel_seen(u64 handle)
{
	struct kernel *kernel;
	struct caller who;

	if (!identify(&who))
		return SEEN_NOT_KEPT;
	kernel = kernel_of(&who, handle);
	if (!kernel)
		return learn_kernel(&who, handle, UNNAMED | unloads_of(&who)) ? SEEN_UNNAMED : SEEN_NOT_KEPT;
	return kernel->mark & UNNAMED ? SEEN_UNNAMED : SEEN_NAMED;
}

static __always_inline void note_reuse(const struct caller *who, struct kernel *kernel)
{
	struct program *program = program_of(who);

	/* In this order: where the count is not seen, the handle is what it was. */
	__sync_fetch_and_add(&kernel->generation, 1);
	if (program) {
		__sync_fetch_and_add(&program->reused, 1);
		__sync_fetch_and_add(reused_by(who->exec_id), 1);
	}
}

/* The kernel of a handle has a name, of which `mark` is a hash. Returns KERNEL_NOW. */
RARE u32 kernel_is(u64 handle, u64 mark)
{
	struct kernel *kernel;
	struct caller who;
	int is_other;

	if (!identify(&who))
		return KERNEL_FORGOTTEN;
	mark &= ~UNNAMED;
	kernel = kernel_of(&who, handle);
	if (!kernel)
		return learn_kernel(&who, handle, mark) ? 0 : KERNEL_FORGOTTEN;
	is_other = kernel->mark & UNNAMED ? kernel->mark != (UNNAMED | unloads_of(&who)) : kernel->mark != mark;
	if (is_other)
		note_reuse(&who, kernel);
	kernel->mark = mark;
	return KERNEL_NOW(kernel->generation, is_other);
}

/* What tells the name of a kernel apart that may have been named before we looked. */
static __always_inline u64 mark_of(const struct caller *who, u64 handle)
{
	struct kernel *kernel = kernel_of(who, handle);

	return kernel && !(kernel->mark & UNNAMED) ? kernel->mark : handle;
}

#endif
