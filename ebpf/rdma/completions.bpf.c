// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What has come to its end? Programs ask for completions in a busy loop, which is looked at in windows of time, as often as
 * the agent allows. */
#include "rdma/completing.bpf.h"

#define MOST_COMPLETIONS 256 /* of one call */

ROUND(take_polled)(u32 i, struct poll *p)
{
	struct queue_pair *pair;
	struct verbs_wc wc;

	if (i >= p->found)
		return 1;
	if (!read_user(&wc, sizeof(wc), p->wc + i * WC_SIZE))
		return 1;
	pair = pair_of(&p->who, p->context, wc.qp_num);
	if (pair)
		take_completion(p, pair, &wc, wc.opcode & WC_RECEIVE ? SIDE_RECEIVE : SIDE_SEND);
	return 0;
}

/* int (*poll_cq)(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc) */
SEC("uprobe")
int poll_cq(struct pt_regs *ctx)
{
	struct poll_window *window;
	struct caller who;

	if (!identify(&who))
		return 0;
	window = may_look(&who);
	if (window)
		begin_call(&who, VERBS_POLL, argument(ctx, 0), argument(ctx, 2), window->number);
	return 0;
}

static __always_inline int end_polling(struct poll *p)
{
	struct verbs_call call;

	if (!end_call(&p->who, VERBS_POLL, &call))
		return 0;
	p->queue = call.a;
	p->wc = call.b;
	p->window = call.c;
	return 1;
}

SEC("uprobe")
int poll_cq_done(struct pt_regs *ctx)
{
	struct poll p = {};

	if (!identify(&p.who) || !end_polling(&p) || RESULT(ctx) <= 0)
		return 0;
	p.found = RESULT(ctx);
	if (!read_user(&p.context, sizeof(p.context), p.queue))
		return 0;
	p.now = bpf_ktime_get_ns();
	p.unread = unread_of(&p.who);
	REPEAT(MOST_COMPLETIONS, take_polled, &p);
	if (p.found > MOST_COMPLETIONS)
		lose(LOSS_IMPLAUSIBLE);
	return 0;
}
