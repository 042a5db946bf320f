// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of waits: which code waits for a device? */
#include "abi/cookies.h"
#include "abi/samples.h"
#include "profile/calls.bpf.h"
#include "profile/stacks.bpf.h"

SEC("uprobe")
int profile_wait(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered *e;

	if (!identify(&who))
		return 0;
	e = enter(&who, cookie);
	if (e)
		note_place(ctx, e);
	return 0;
}

SEC("uretprobe")
int profile_wait_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct weight w;
	struct caller who;
	struct entered e;

	if (!identify(&who) || !leave(&who, cookie, &e))
		return 0;
	w = weight_of(bpf_ktime_get_ns() - e.start_ns);
	if (is_due(&who, SAMPLE_WAIT, &w))
		take_at_return(ctx, &who, SAMPLE_WAIT, cookie, &w, COOKIE_FUNCTION(cookie));
	return 0;
}
