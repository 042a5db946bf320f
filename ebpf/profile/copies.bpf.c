// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of copies: which code copies how much, and waits for it? */
#include "abi/cookies.h"
#include "abi/samples.h"
#include "cuda/capture.bpf.h"
#include "cuda/copy.bpf.h"
#include "profile/calls.bpf.h"
#include "profile/stacks.bpf.h"

/* Copies: bytes, and for those that block the time as well. */
#define PROFILE_COPY(shape)                                                                                            \
	static __always_inline int take_copy_##shape(struct pt_regs *ctx)                                              \
	{                                                                                                              \
		u64 cookie = attach_cookie(ctx);                                                                       \
		struct copy copy = {};                                                                                 \
		struct caller who;                                                                                     \
		struct weight w;                                                                                       \
		if (!identify(&who) || is_inner(&who, cookie) || !copy_##shape##_of(ctx, cookie, &copy))               \
			return 0;                                                                                      \
		if (COOKIE_STREAM(cookie) != ARGUMENT_NONE &&                                                          \
		    capturing_stream(&who, argument(ctx, COOKIE_STREAM(cookie)), COOKIE_FLAGS(cookie)))                \
			return 0;                                                                                      \
		w = weight_of(copy.bytes);                                                                             \
		if (is_due(&who, SAMPLE_COPY, &w) &&                                                                   \
		    !take_at_entry(ctx, &who, SAMPLE_COPY, cookie, &w, COOKIE_FUNCTION(cookie)))                       \
			keep(sampler_of(&who, SAMPLE_COPY), w.value, w.calls);                                         \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC("uprobe") int profile_copy_##shape##_async(struct pt_regs *ctx)                                            \
	{                                                                                                              \
		return take_copy_##shape(ctx);                                                                         \
	}                                                                                                              \
	SEC("uprobe") int profile_copy_##shape(struct pt_regs *ctx)                                                    \
	{                                                                                                              \
		u64 cookie = attach_cookie(ctx);                                                                       \
		struct copy copy = {};                                                                                 \
		struct entered *e;                                                                                     \
		struct caller who;                                                                                     \
		if (!identify(&who) || !copy_##shape##_of(ctx, cookie, &copy))                                         \
			return 0;                                                                                      \
		e = enter(&who, cookie);                                                                               \
		if (!e)                                                                                                \
			return 0;                                                                                      \
		e->size = copy.bytes;                                                                                  \
		note_place(ctx, e);                                                                                    \
		return 0;                                                                                              \
	}
PROFILE_COPY(linear)
PROFILE_COPY(2d)
PROFILE_COPY(3d)
PROFILE_COPY(parms)

/* An asynchronous copy that may hand its work to the function with FLAG_INNER and the same number: whoever comes first
 * takes the stack, and that is the one that the program called. */
static __always_inline void note_outer(struct pt_regs *ctx)
{
	struct caller who;

	if (identify(&who))
		enter(&who, attach_cookie(ctx));
}

/* First what needs little: its room on the stack is the walk's then. */
SEC("uprobe")
int profile_copy_outer(struct pt_regs *ctx)
{
	note_outer(ctx);
	return take_copy_linear(ctx);
}

SEC("uretprobe")
int profile_copy_outer_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered e;

	if (identify(&who))
		leave(&who, cookie, &e);
	return 0;
}

SEC("uretprobe")
int profile_copy_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered e;
	struct weight w;

	if (!identify(&who) || !leave(&who, cookie, &e))
		return 0;
	w = weight_of(bpf_ktime_get_ns() - e.start_ns);
	if (is_due(&who, SAMPLE_WAIT, &w))
		take_at_return(ctx, &who, SAMPLE_WAIT, cookie, &w, COOKIE_FUNCTION(cookie));
	w = weight_of(e.size);
	if (!RESULT(ctx) && is_due(&who, SAMPLE_COPY, &w))
		take_at_return(ctx, &who, SAMPLE_COPY, cookie, &w, COOKIE_FUNCTION(cookie));
	return 0;
}
