// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of memory: which code allocates, and what is freed? */
#include "abi/cookies.h"
#include "abi/samples.h"
#include "cuda/extents.bpf.h"
#include "profile/calls.bpf.h"
#include "profile/stacks.bpf.h"

SEC("uprobe")
int profile_alloc(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered *e;

	if (!identify(&who))
		return 0;
	e = enter(&who, cookie);
	if (!e)
		return 0;
	e->size = argument(ctx, COOKIE_SIZE(cookie));
	e->address = argument(ctx, COOKIE_OUT(cookie));
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED)
		e->pitch_at = argument(ctx, COOKIE_SIZE2(cookie));
	return 0;
}

SEC("uprobe")
int profile_alloc_extent(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered *e;

	if (!identify(&who))
		return 0;
	e = enter(&who, cookie);
	if (!e)
		return 0;
	e->address = argument(ctx, 0);
	e->size = rows_of(ctx, &e->pitch_at);
	return 0;
}

SEC("uretprobe")
int profile_alloc_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), pitch = 0;
	struct caller who;
	struct entered e;
	struct weight w;

	if (!identify(&who) || !leave(&who, cookie, &e) || RESULT(ctx))
		return 0;
	if (!(COOKIE_FLAGS(cookie) & FLAG_DIRECT) && !read_user(&e.address, sizeof(e.address), e.address))
		return 0;
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED) {
		read_user(&pitch, sizeof(pitch), e.pitch_at);
		e.size *= pitch;
	}
	w = weight_of(e.size);
	take_at_return(ctx, &who, SAMPLE_ALLOC, cookie, &w, e.address);
	return 0;
}

SEC("uprobe")
int profile_free(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), address = argument(ctx, COOKIE_OUT(cookie));
	struct caller who;
	struct entered *e;

	if (!address || !identify(&who))
		return 0;
	e = enter(&who, cookie);
	if (e)
		e->address = address;
	return 0;
}

SEC("uretprobe")
int profile_free_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered e;

	/* As of when the call began: whatever was given the address since is another allocation. */
	if (identify(&who) && leave(&who, cookie, &e) && !RESULT(ctx))
		submit_head(&who, SAMPLE_FREE, cookie, e.start_ns, e.address);
	return 0;
}
