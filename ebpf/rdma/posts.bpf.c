// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What do programs post? The provider's own functions, which libibverbs calls by pointer. */
#include "rdma/posting.bpf.h"

#define MOST_REQUESTS 512 /* of one chain */

struct chain {
	struct queue_pair *pair;
	struct work_ring *ring;
	u64 now;
	u64 next;
	struct parts parts;
	u64 found;
};

ROUND(take_request)(u32 i, struct chain *c)
{
	struct verbs_wr wr;

	if (!c->next)
		return 1;
	if (!read_user(&wr, sizeof(wr), c->next))
		return 1;
	c->next = wr.next;
	c->parts = (struct parts){ .list = wr.sg_list, .left = wr.num_sge };
	/* One part is what there is nearly always. */
	if (wr.num_sge == 1)
		add_part(0, &c->parts);
	else if (wr.num_sge)
		REPEAT(MOST_PARTS, add_part, &c->parts);
	if (wr.num_sge > MOST_PARTS)
		lose(LOSS_IMPLAUSIBLE);
	note_posted(c->pair, c->ring, c->now, wr.wr_id, operation_of(wr.opcode), c->parts.bytes,
		    wr.send_flags & SEND_SIGNALED || c->pair->all_signal);
	return 0;
}

ROUND(take_receive)(u32 i, struct chain *c)
{
	u64 next;

	if (!c->next)
		return 1;
	if (!read_user(&next, sizeof(next), c->next + __builtin_offsetof(struct verbs_wr, next)))
		return 1;
	c->next = next;
	c->found++;
	return 0;
}

/* int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr) */
SEC("uprobe")
int post_send(struct pt_regs *ctx)
{
	struct chain c = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	c.pair = posting_pair(&who, argument(ctx, 0));
	if (!c.pair)
		return 0;
	c.ring = ring_of(c.pair);
	c.now = bpf_ktime_get_ns();
	c.next = argument(ctx, 1);
	/* One request is what there is nearly always. */
	take_request(0, &c);
	if (c.next)
		REPEAT(MOST_REQUESTS, take_request, &c);
	if (c.next)
		lose(LOSS_IMPLAUSIBLE);
	return 0;
}

/* int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr) */
SEC("uprobe")
int post_recv(struct pt_regs *ctx)
{
	struct chain c = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	c.pair = posting_pair(&who, argument(ctx, 0));
	if (!c.pair)
		return 0;
	c.next = argument(ctx, 1);
	REPEAT(MOST_REQUESTS, take_receive, &c);
	if (c.next)
		lose(LOSS_IMPLAUSIBLE);
	__sync_fetch_and_add(&c.pair->awaited, c.found);
	return 0;
}
