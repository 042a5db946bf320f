// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of captures and events: which stream records, or waits for, what? */
#include "abi/cookies.h"
#include "cuda/calls.bpf.h"
#include "cuda/recorded_events.bpf.h"

/* (CUstream, ...) */
SEC("uprobe")
int capture_begin(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call *call;

	call = call_begun(&who, cookie);
	if (call)
		call->stream = argument(ctx, 0);
	return 0;
}

SEC("uretprobe")
int capture_begun(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct returning back;

	if (succeeded(ctx, cookie, &back))
		start_capture(&back.who, back.call->stream, COOKIE_FLAGS(cookie), back.call->start_ns);
	return 0;
}

/* (CUevent, CUstream, ...) */
SEC("uprobe")
int event_record(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;

	if (!identify(&who))
		return 0;
	if (may_capture(&who))
		capture_event(&who, argument(ctx, 0), argument(ctx, 1), COOKIE_FLAGS(cookie));
	if (!is_followed(cookie))
		return 0;
	if (capturing_call(ctx, &who, cookie))
		forget_event(&who, argument(ctx, 0));
	else
		record_event(&who, argument(ctx, 0), argument(ctx, 1), COOKIE_FLAGS(cookie));
	return 0;
}

/* Graphs will record an event, unseen. */
SEC("uprobe")
int event_lost(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;

	if (busy_time && identify(&who))
		forget_event(&who, argument(ctx, COOKIE_OUT(cookie)));
	return 0;
}

/* An event is no more, and its handle may become another's. */
SEC("uprobe")
int event_destroyed(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), event = argument(ctx, COOKIE_OUT(cookie));
	struct caller who;

	if (!identify(&who))
		return 0;
	if (busy_time)
		forget_event(&who, event);
	forget_capture(HANDLE_EVENT, event);
	return 0;
}

/* (CUstream, CUevent, ...) */
SEC("uprobe")
int stream_wait_event(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;

	if (!identify(&who))
		return 0;
	if (may_capture(&who))
		join_capture(&who, argument(ctx, 0), argument(ctx, 1), COOKIE_FLAGS(cookie));
	if (is_followed(cookie) && !capturing_call(ctx, &who, cookie))
		join_streams(&who, argument(ctx, 0), argument(ctx, 1), COOKIE_FLAGS(cookie));
	return 0;
}
