// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What do programs post by a queue pair's own functions, ibv_wr_*? First the operation, then where its data are. */
#include "rdma/queue_pairs.bpf.h"

#define COOKIE_OPERATION(c) ((u32)(c)&7)
#define COOKIE_LENGTHS(c) ((u32)(c)&3)
enum lengths {
	LENGTH_OF_PART,	  /* (qp, lkey, address, length) */
	LENGTH_OF_INLINE, /* (qp, address, length) */
	LENGTHS_OF_PARTS, /* (qp, n, list): of struct ibv_sge, or ibv_data_buf, whose size lies in the same place */
};

static __always_inline struct queue_pair *extended_pair(const struct caller *who, u64 address)
{
	struct queue_pair *pair;
	struct verbs_qp qp;

	if (!read_user(&qp, sizeof(qp), address))
		return NULL;
	pair = any_pair(who, qp.context, qp.qp_num);
	if (pair && pair->key.qpn != QPN_NONE) {
		pair->send_queue = qp.send_cq;
		pair->receive_queue = qp.recv_cq;
		pair->type = qp.qp_type;
	}
	return pair;
}

SEC("uprobe")
int extended_post(struct pt_regs *ctx)
{
	struct {
		u64 wr_id;
		u32 flags;
	} set;
	struct queue_pair *pair;
	struct caller who;
	u64 qp;

	if (!identify(&who))
		return 0;
	qp = argument(ctx, 0);
	pair = extended_pair(&who, qp);
	if (!pair || !read_user(&set, sizeof(set), qp + QP_EX_WR_ID))
		return 0;
	note_posted(pair, ring_of(pair), bpf_ktime_get_ns(), set.wr_id, COOKIE_OPERATION(attach_cookie(ctx)), 0,
		    set.flags & SEND_SIGNALED || pair->all_signal);
	return 0;
}

struct lengths_of {
	u64 list;
	u64 bytes;
	u64 parts;
};

ROUND(add_length)(u32 i, struct lengths_of *l)
{
	struct verbs_sge sge;

	if (i >= l->parts || !read_user(&sge, sizeof(sge), l->list + i * sizeof(sge)))
		return 1;
	l->bytes += sge.length;
	return 0;
}

SEC("uprobe")
int extended_data(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), bytes, last;
	struct work_ring *ring;
	struct queue_pair *pair;
	struct caller who;

	if (!identify(&who))
		return 0;
	pair = extended_pair(&who, argument(ctx, 0));
	ring = pair ? ring_of(pair) : NULL;
	if (!pair || !pair->posted)
		return 0;
	switch (COOKIE_LENGTHS(cookie)) {
	case LENGTH_OF_PART:
		bytes = (u32)argument(ctx, 3);
		break;
	case LENGTH_OF_INLINE:
		bytes = argument(ctx, 2);
		break;
	default: {
		struct lengths_of l = { .list = argument(ctx, 2), .parts = argument(ctx, 1) };

		REPEAT(32, add_length, &l);
		if (l.parts > 32)
			lose(LOSS_IMPLAUSIBLE);
		bytes = l.bytes;
	}
	}
	last = ring ? ring->posted[(pair->posted - 1) & (RING - 1)].when & (RDMA_OPERATIONS - 1) : RDMA_OTHER;
	if (bytes >> 40) {
		lose(LOSS_IMPLAUSIBLE);
		return 0;
	}
	__sync_fetch_and_add(&pair->bytes[last & (RDMA_OPERATIONS - 1)], bytes);
	return 0;
}
