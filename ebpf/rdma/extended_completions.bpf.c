// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What has come to its end, where programs ask by a completion queue's own functions, struct ibv_cq_ex? One completion after
 * another is the present one, from a function's return until the next one is asked for: meanwhile a program reads of it
 * what it wants to know. Which queue pair it is of is known where the program reads it, or where the queue has one alone. */
#include "rdma/completing.bpf.h"
#include "rdma/queues.bpf.h"

static const struct completion_queue no_queue = {};

/* The present completion of a thread is kept among its calls, by its queue: no function has such a number. */
static __always_inline void open_completion(const struct caller *who, u64 queue, u64 window)
{
	struct verbs_cq_ex_head head;

	if (read_user(&head, sizeof(head), queue + CQ_EX_STATUS))
		begin_call(who, queue, head.wr_id, head.status, window);
}

static __noinline int leave_unread(struct poll *p, u64 id, u32 status)
{
	struct verbs_program *program = verbs_of(&p->who);

	/* Where it was of is unknown, so that nobody knows what is next in any of the queue pairs. */
	if (program)
		__sync_fetch_and_add(&program->unread, 1);
	ADD_ROW(&p->who, id, RDMA_ROW_UNMATCHED, 0, RDMA_UNMATCHED_UNREAD, 0);
	if (status && !id)
		ADD_ROW(&p->who, 0, RDMA_ROW_ERROR, 0, status < 255 ? status : 255, 0);
	return 0;
}

static __always_inline u32 side_of(const struct poll *p, const struct queue_pair *pair, u32 known, u32 opcode)
{
	if (known & 1 << READ_OPCODE)
		return opcode & WC_RECEIVE ? SIDE_RECEIVE : SIDE_SEND;
	if (p->queue == pair->send_queue && p->queue != pair->receive_queue)
		return SIDE_SEND;
	if (p->queue == pair->receive_queue && p->queue != pair->send_queue)
		return SIDE_RECEIVE;
	return SIDE_UNKNOWN;
}

/* Takes out the present completion of a thread in a queue; false where there is none. */
static __noinline int take_present(struct poll *p, struct verbs_wc *wc, u32 *known)
{
	struct poll_window *window = window_of(&p->who);
	struct verbs_call call;

	if (!end_call(&p->who, p->queue, &call))
		return 0;
	/* Where the window was closed meanwhile, what was read may not have been seen. */
	if (!window || !window->is_open || window->number != call.c)
		return 0;
	p->window = window->number;
	p->now = call.start_ns;
	wc->wr_id = call.a;
	wc->status = call.b;
	wc->opcode = call.read.opcode;
	wc->byte_len = call.read.bytes;
	wc->qp_num = call.read.qpn;
	*known = call.read.known;
	return read_user(&p->context, sizeof(p->context), p->queue);
}

/* The present completion is over: what the program has read of it is all that it reads. */
static __noinline int settle(struct poll *p)
{
	struct queue_pair *pair;
	struct verbs_wc wc = {};
	u32 side, known = 0;

	if (!take_present(p, &wc, &known))
		return 0;
	if (known & 1 << READ_QP_NUM) {
		pair = pair_of(&p->who, p->context, wc.qp_num);
		if (!pair)
			return 0; /* it found no room, which was said */
	} else {
		pair = only_pair(&p->who, p->context, p->queue);
		if (!pair)
			return leave_unread(p, 0, wc.status);
	}
	side = side_of(p, pair, known, wc.opcode);
	if (!wc.status && side == SIDE_UNKNOWN)
		return leave_unread(p, pair->id, 0);
	p->unread = unread_of(&p->who);
	return take_completion(p, pair, &wc, side);
}

static __noinline int ask(const struct caller *who, u64 function, u64 queue)
{
	struct poll_window *window = may_look(who);

	if (window)
		begin_call(who, function, queue, window->number, 0);
	return 0;
}

static __always_inline int asked(struct pt_regs *ctx, u64 function)
{
	struct verbs_call call;
	struct caller who;

	if (leave(function, &who, &call) && !RESULT(ctx))
		open_completion(&who, call.a, call.b);
	return 0;
}

/* int (*start_poll)(struct ibv_cq_ex *current, struct ibv_poll_cq_attr *attr) */
SEC("uprobe")
int start_poll(struct pt_regs *ctx)
{
	struct caller who;

	return identify(&who) ? ask(&who, VERBS_START_POLL, argument(ctx, 0)) : 0;
}

SEC("uprobe")
int start_poll_done(struct pt_regs *ctx)
{
	return asked(ctx, VERBS_START_POLL);
}

/* int (*next_poll)(struct ibv_cq_ex *current) */
SEC("uprobe")
int next_poll(struct pt_regs *ctx)
{
	struct poll p = { .queue = argument(ctx, 0) };

	if (!identify(&p.who))
		return 0;
	settle(&p);
	return ask(&p.who, VERBS_NEXT_POLL, p.queue);
}

SEC("uprobe")
int next_poll_done(struct pt_regs *ctx)
{
	return asked(ctx, VERBS_NEXT_POLL);
}

/* void (*end_poll)(struct ibv_cq_ex *current) */
SEC("uprobe")
int end_poll(struct pt_regs *ctx)
{
	struct poll p = { .queue = argument(ctx, 0) };

	return identify(&p.who) ? settle(&p) : 0;
}

/* uint32_t (*read_qp_num)(struct ibv_cq_ex *current), and its likes: the cookie says what is read. */
SEC("uprobe")
int read_completion(struct pt_regs *ctx)
{
	struct verbs_call_key key = { .function = argument(ctx, 0) };
	struct caller who;

	if (!identify(&who))
		return 0;
	key.task = who.task;
	if (bpf_map_lookup_elem(&verbs_calls, &key))
		begin_call(&who, VERBS_READ, key.function, attach_cookie(ctx), 0);
	return 0;
}

SEC("uprobe")
int read_completion_done(struct pt_regs *ctx)
{
	struct verbs_call_key key = {};
	struct verbs_call *present, call;
	struct caller who;

	if (!leave(VERBS_READ, &who, &call))
		return 0;
	key.task = who.task;
	key.function = call.a;
	present = bpf_map_lookup_elem(&verbs_calls, &key);
	if (!present)
		return 0;
	switch (call.b) {
	case READ_OPCODE:
		present->read.opcode = RESULT(ctx);
		break;
	case READ_BYTES:
		present->read.bytes = RESULT(ctx);
		break;
	case READ_QP_NUM:
		present->read.qpn = RESULT(ctx);
		break;
	default:
		return 0;
	}
	present->read.known |= 1 << (call.b & 3);
	return 0;
}

/* int ibv_cmd_create_cq_ex(struct ibv_context *, const struct ibv_cq_init_attr_ex *, struct verbs_cq *, ...), which providers
 * call for what ibv_create_cq_ex makes. */
SEC("uprobe")
int command_create_cq(struct pt_regs *ctx)
{
	return enter(VERBS_CREATE_QUEUE, argument(ctx, 2), 0, 0);
}

SEC("uprobe")
int command_create_cq_done(struct pt_regs *ctx)
{
	struct completion_queue_key key = {};
	struct completion_queue *found;
	struct verbs_call call;
	struct caller who;

	if (!leave(VERBS_CREATE_QUEUE, &who, &call) || RESULT(ctx) || !verbs_of(&who))
		return 0;
	key = (struct completion_queue_key){ who.tgid, who.exec_id, call.a };
	found = bpf_map_lookup_elem(&completion_queues, &key);
	if (found)
		*found = no_queue;
	else if (!PUT_IN(completion_queues, TABLE_COMPLETION_QUEUES, &who, &key, &no_queue))
		lose(LOSS_RDMA_FULL);
	return 0;
}

/* int ibv_destroy_cq(struct ibv_cq *cq): where it fails, one knows no more of the queue than of an older one. */
SEC("uprobe")
int destroy_cq(struct pt_regs *ctx)
{
	struct completion_queue_key key = { .queue = argument(ctx, 0) };
	struct caller who;

	if (!identify(&who))
		return 0;
	key.tgid = who.tgid;
	key.exec_id = who.exec_id;
	TAKE_OUT(completion_queues, TABLE_COMPLETION_QUEUES, &who, &key);
	return 0;
}
