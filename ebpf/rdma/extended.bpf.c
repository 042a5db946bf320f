// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What do programs post by a queue pair's own functions, ibv_wr_*? First the operation, then where its data are. */
#include "rdma/posting.bpf.h"

#define COOKIE_OPERATION(c) ((u32)(c)&7)
#define COOKIE_LENGTHS(c) ((u32)(c)&3)
enum lengths {
	LENGTH_OF_PART,	  /* (qp, lkey, address, length) */
	LENGTH_OF_INLINE, /* (qp, address, length) */
	LENGTHS_OF_PARTS, /* (qp, n, list): of struct ibv_sge, or ibv_data_buf, whose size lies in the same place */
};

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
	pair = posting_pair(&who, qp);
	if (!pair || !read_user(&set, sizeof(set), qp + QP_EX_WR_ID))
		return 0;
	note_posted(pair, ring_of(pair), bpf_ktime_get_ns(), set.wr_id, COOKIE_OPERATION(attach_cookie(ctx)), 0,
		    set.flags & SEND_SIGNALED || pair->all_signal);
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
	pair = posting_pair(&who, argument(ctx, 0));
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
		struct parts parts = { .list = argument(ctx, 2), .left = argument(ctx, 1) };

		REPEAT(MOST_PARTS, add_part, &parts);
		if (parts.left > MOST_PARTS)
			lose(LOSS_IMPLAUSIBLE);
		bytes = parts.bytes;
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
