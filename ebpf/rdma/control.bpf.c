// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which queue pairs and memory regions do programs make, and to whom do they connect? libibverbs' own functions. */
#include "lib/buckets.bpf.h"
#include "rdma/calls.bpf.h"
#include "rdma/nccl_pairs.bpf.h"
#include "rdma/queues.bpf.h"

struct memory_region_key {
	u32 tgid;
	u32 exec_id;
	u64 region;
};

/* Bytes of each that is registered. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct memory_region_key);
	__type(value, u64);
} memory_regions SEC(".maps");

/* ibv_open_device: where the provider's functions are. */
SEC("uprobe")
int device_opened(struct pt_regs *ctx)
{
	struct verbs_program *program;
	struct verbs_context context;
	struct verbs_event *event;
	struct caller who;
	u64 address = LONG_RESULT(ctx);

	if (!address || !identify(&who) || !read_user(&context, sizeof(context), address))
		return 0;
	program = verbs_of(&who);
	event = program ? event_of(&who, program, VERBS_OPENED) : NULL;
	if (!event)
		return 0;
	event->functions[0] = context.poll_cq;
	event->functions[1] = context.post_send;
	event->functions[2] = context.post_recv;
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 0;
}

static __always_inline void note_made(const struct caller *who, u64 context, u32 qpn, const struct verbs_qp_init *init,
				      u64 comm)
{
	struct queue_pair *pair = pair_of(who, context, qpn);

	note_queue(who, init->send_cq, qpn);
	note_queue(who, init->recv_cq, qpn);
	if (!pair)
		return;
	if (comm)
		pair->comm = comm;
	pair->depth = init->max_send_wr;
	pair->all_signal = init->sq_sig_all != 0;
	pair->type = init->qp_type;
	pair->send_queue = init->send_cq;
	pair->receive_queue = init->recv_cq;
	if (pair->state == STATE_UNKNOWN && !pair->posted) {
		pair->state = QP_RESET;
		begin_anew(who, pair);
	}
}

/* struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) */
SEC("uprobe")
int create_qp(struct pt_regs *ctx)
{
	return enter(VERBS_CREATE, argument(ctx, 0), argument(ctx, 1), comm_of_maker(ctx));
}

SEC("uprobe")
int create_qp_done(struct pt_regs *ctx)
{
	struct verbs_qp_init init;
	struct verbs_call call;
	struct caller who;
	struct verbs_qp qp;
	u64 made = LONG_RESULT(ctx);

	if (!leave(VERBS_CREATE, &who, &call) || !made)
		return 0;
	if (read_user(&qp, sizeof(qp), made) && read_user(&init, sizeof(init), call.b))
		note_made(&who, qp.context, qp.qp_num, &init, call.c);
	return 0;
}

/* int ibv_cmd_create_qp_ex2(struct ibv_context *, struct verbs_qp *, struct ibv_qp_init_attr_ex *, ...), which providers
 * call for what ibv_create_qp_ex makes, and its likes; of ibv_cmd_create_qp the first is the protection domain. */
SEC("uprobe")
int command_create_qp(struct pt_regs *ctx)
{
	u64 context = argument(ctx, 0);
	struct caller who;

	if (!identify(&who))
		return 0;
	if (attach_cookie(ctx) && !read_user(&context, sizeof(context), context))
		return 0;
	begin_call(&who, VERBS_CREATE_BY_COMMAND, context, argument(ctx, 1), argument(ctx, 2));
	return 0;
}

SEC("uprobe")
int command_create_qp_done(struct pt_regs *ctx)
{
	struct verbs_qp_init init;
	struct verbs_call call;
	struct caller who;
	struct verbs_qp qp;

	if (!leave(VERBS_CREATE_BY_COMMAND, &who, &call) || RESULT(ctx))
		return 0;
	if (read_user(&qp, sizeof(qp), call.b) && read_user(&init, sizeof(init), call.c))
		note_made(&who, call.a, qp.qp_num, &init, 0);
	return 0;
}

/* A provider's own function by which a program gets what it needs to work past libibverbs: a queue's memory, a doorbell. */
SEC("uprobe")
int go_direct(struct pt_regs *ctx)
{
	struct verbs_program *program;
	struct caller who;

	if (!identify(&who))
		return 0;
	program = verbs_of(&who);
	if (program)
		__sync_fetch_and_add(&program->direct, 1);
	return 0;
}

/* int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) */
SEC("uprobe")
int modify_qp(struct pt_regs *ctx)
{
	return enter(VERBS_MODIFY, argument(ctx, 0), argument(ctx, 1), argument(ctx, 2));
}

static __noinline int tell_extended(const struct caller *who, u64 qp)
{
	struct verbs_program *program = verbs_of(who);
	struct verbs_event *event;
	u64 sum = 0;

	if (!program)
		return 0;
	event = event_of(who, program, VERBS_EXTENDED);
	if (!event)
		return 0;
	if (bpf_probe_read_user(event->functions, QP_EX_COUNT * sizeof(u64), (void *)(qp + QP_EX_FUNCTIONS))) {
		bpf_ringbuf_discard(event, 0);
		program->told--;
		return 0;
	}
#pragma unroll
	for (int i = 0; i < QP_EX_COUNT; i++)
		sum = sum * 31 + event->functions[i];
	/* How a batch begins and ends: whatever has functions of its own has these. */
	if (!event->functions[QP_EX_START] || !event->functions[QP_EX_COMPLETE] || program->extended == sum) {
		bpf_ringbuf_discard(event, 0);
		program->told--;
		return 0;
	}
	program->extended = sum;
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* Says once which functions completion queues have of their own; true where it is news. */
static __noinline int tell_queue(const struct caller *who, u64 queue)
{
	struct verbs_program *program = verbs_of(who);
	u64 functions[CQ_EX_COUNT], sum = 0;
	struct verbs_event *event;

	if (!program || bpf_probe_read_user(functions, sizeof(functions), (void *)(queue + CQ_EX_FUNCTIONS)))
		return 0;
#pragma unroll
	for (int i = 0; i < CQ_EX_COUNT; i++)
		sum = sum * 31 + functions[i];
	/* Whatever has functions of its own has the first four. */
	if (!functions[0] || !functions[1] || !functions[2] || !functions[3] || program->queues == sum)
		return 0;
	event = event_of(who, program, VERBS_QUEUE);
	if (!event)
		return 0;
	__builtin_memcpy(event->functions, functions, sizeof(functions));
	program->queues = sum;
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 1;
}

static __always_inline void note_address(struct queue_pair *pair, u64 attr, u32 mask)
{
	u8 port = 0;

	if (mask & ATTR_PORT)
		read_user(&pair->port, sizeof(pair->port),
			  attr + __builtin_offsetof(struct verbs_qp_attr, initial_port));
	if (!(mask & ATTR_AV))
		return;
	read_user(pair->gid, sizeof(pair->gid), attr + __builtin_offsetof(struct verbs_qp_attr, dgid));
	read_user(&pair->gid_index, 1, attr + __builtin_offsetof(struct verbs_qp_attr, sgid_index));
	read_user(&pair->has_gid, 1, attr + __builtin_offsetof(struct verbs_qp_attr, is_global));
	read_user(&pair->destination, 2, attr + __builtin_offsetof(struct verbs_qp_attr, dlid));
	read_user(&port, 1, attr + __builtin_offsetof(struct verbs_qp_attr, port_num));
	if (port)
		pair->port = port;
}

SEC("uprobe")
int modify_qp_done(struct pt_regs *ctx)
{
	struct verbs_attr_head attr;
	struct queue_pair *pair;
	struct verbs_call call;
	struct caller who;
	struct verbs_qp qp;
	u32 mask;

	if (!leave(VERBS_MODIFY, &who, &call) || RESULT(ctx))
		return 0;
	if (!read_user(&qp, sizeof(qp), call.a) || !read_user(&attr, sizeof(attr), call.b))
		return 0;
	mask = call.c;
	note_queue(&who, qp.send_cq, qp.qp_num);
	note_queue(&who, qp.recv_cq, qp.qp_num);
	pair = pair_of(&who, qp.context, qp.qp_num);
	if (!pair)
		return 0;
	pair->type = qp.qp_type;
	if (mask & ATTR_PATH_MTU)
		pair->mtu = attr.path_mtu;
	if (mask & ATTR_DEST_QPN)
		pair->remote_qpn = attr.dest_qp_num;
	note_address(pair, call.b, mask);
	if (!(mask & ATTR_STATE))
		return 0;
	pair->state = attr.qp_state < STATE_UNKNOWN ? attr.qp_state : STATE_UNKNOWN;
	ADD_ROW(&who, pair->id, RDMA_ROW_STATE, 0, pair->state, 0);
	if (attr.qp_state == QP_RESET || attr.qp_state == QP_INIT) {
		begin_anew(&who, pair);
		if (attr.qp_state == QP_INIT) {
			tell_extended(&who, call.a);
			/* Its completions are seen once these are probed. */
			if (tell_queue(&who, qp.send_cq))
				pair->is_followed = 0;
			if (qp.recv_cq != qp.send_cq)
				tell_queue(&who, qp.recv_cq);
		}
	}
	return 0;
}

/* int ibv_destroy_qp(struct ibv_qp *qp) */
SEC("uprobe")
int destroy_qp(struct pt_regs *ctx)
{
	struct caller who;
	struct verbs_qp qp;

	if (identify(&who) && read_user(&qp, sizeof(qp), argument(ctx, 0)))
		begin_call(&who, VERBS_DESTROY, qp.context, qp.qp_num, 0);
	return 0;
}

SEC("uprobe")
int destroy_qp_done(struct pt_regs *ctx)
{
	struct queue_pair_key key = {};
	struct work_ring_key ring;
	struct queue_pair *pair;
	struct verbs_call call;
	struct caller who;

	if (!leave(VERBS_DESTROY, &who, &call) || RESULT(ctx))
		return 0;
	key = (struct queue_pair_key){ who.tgid, who.exec_id, call.a, call.b, 0 };
	pair = bpf_map_lookup_elem(&queue_pairs, &key);
	if (!pair)
		return 0;
	ring = (struct work_ring_key){ who.tgid, who.exec_id, pair->id };
	pair->is_followed = 0;
	if (!PUT_IN(gone_pairs, TABLE_GONE_PAIRS, &who, &ring, pair))
		lose(LOSS_RDMA_FULL);
	TAKE_OUT(queue_pairs, TABLE_QUEUE_PAIRS, &who, &key);
	TAKE_OUT(work_rings, TABLE_WORK_RINGS, &who, &ring);
	return 0;
}

/* Whatever registers memory, and how long it takes: the region it returns has its size. */
SEC("uprobe")
int register_mr(struct pt_regs *ctx)
{
	return enter(VERBS_REGISTER, 0, 0, 0);
}

SEC("uprobe")
int register_mr_done(struct pt_regs *ctx)
{
	struct memory_region_key key;
	struct verbs_call call;
	struct caller who;
	u64 made = LONG_RESULT(ctx), bytes, took;

	if (!leave(VERBS_REGISTER, &who, &call) || !verbs_of(&who))
		return 0;
	if (!made) {
		ADD_ROW(&who, 0, RDMA_ROW_REFUSED, 0, 0, 0);
		return 0;
	}
	took = bpf_ktime_get_ns() - call.start_ns;
	ADD_ROW(&who, 0, RDMA_ROW_REGISTRATION, 0, duration_bucket(took), took);
	if (!read_user(&bytes, sizeof(bytes), made + MR_LENGTH_AT))
		return 0;
	key = (struct memory_region_key){ who.tgid, who.exec_id, made };
	if (PUT_IN(memory_regions, TABLE_MEMORY_REGIONS, &who, &key, &bytes))
		ADD_ROW(&who, 0, RDMA_ROW_REGISTERED, 0, 0, bytes);
	else
		lose(LOSS_RDMA_FULL);
	return 0;
}

/* int ibv_dereg_mr(struct ibv_mr *mr) */
SEC("uprobe")
int deregister_mr(struct pt_regs *ctx)
{
	return enter(VERBS_DEREGISTER, argument(ctx, 0), 0, 0);
}

SEC("uprobe")
int deregister_mr_done(struct pt_regs *ctx)
{
	struct memory_region_key key;
	struct verbs_call call;
	struct caller who;
	u64 *found, bytes;

	if (!leave(VERBS_DEREGISTER, &who, &call) || RESULT(ctx))
		return 0;
	key = (struct memory_region_key){ who.tgid, who.exec_id, call.a };
	found = bpf_map_lookup_elem(&memory_regions, &key);
	if (!found)
		return 0;
	bytes = *found;
	if (TAKE_OUT(memory_regions, TABLE_MEMORY_REGIONS, &who, &key))
		ADD_ROW(&who, 0, RDMA_ROW_DEREGISTERED, 0, 0, bytes);
	return 0;
}

/* int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event): the element, then its type. */
SEC("uprobe")
int get_event(struct pt_regs *ctx)
{
	return enter(VERBS_GET_EVENT, argument(ctx, 1), 0, 0);
}

SEC("uprobe")
int get_event_done(struct pt_regs *ctx)
{
	struct {
		u64 element;
		u32 type;
		u32 pad;
	} event;
	struct verbs_call call;
	struct caller who;

	if (!leave(VERBS_GET_EVENT, &who, &call) || RESULT(ctx) || !verbs_of(&who))
		return 0;
	if (read_user(&event, sizeof(event), call.a))
		ADD_ROW(&who, 0, RDMA_ROW_ASYNC, 0, event.type < 255 ? event.type : 255, 0);
	return 0;
}
