/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* To which queue pair is posted, and how many bytes are there in a list of their parts? */
#ifndef OTEL_GPU_RDMA_POSTING_BPF_H
#define OTEL_GPU_RDMA_POSTING_BPF_H

#include "rdma/queue_pairs.bpf.h"

#define MOST_PARTS 32 /* of one request */

struct parts {
	u64 list; /* of struct ibv_sge */
	u64 left;
	u64 bytes;
};

ROUND(add_part)(u32 i, struct parts *p)
{
	struct verbs_sge sge;

	if (i >= p->left || !read_user(&sge, sizeof(sge), p->list + i * sizeof(sge)))
		return 1;
	p->bytes += sge.length;
	return 0;
}

static __always_inline struct queue_pair *posting_pair(const struct caller *who, u64 address)
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

#endif
