/* A provider without a device: what is posted completes at once, and is told when somebody asks. Its functions are its own. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE 65536 /* completions; a power of two */
#define BAD_KEY 0xbad

struct queue {
	struct ibv_cq_ex cq; /* first: what is a struct ibv_cq is the beginning of one of these */
	struct ibv_wc present;
	pthread_mutex_t lock;
	unsigned head, tail;
	struct ibv_wc wc[QUEUE];
};

struct pair {
	struct ibv_qp_ex ex; /* first, as in every provider: what is a struct ibv_qp is one of these */
	uint32_t depth, in_flight;
	uint64_t begun, begun_in_flight;
	unsigned all_signal, failed;
	uint64_t unsignaled;
	struct ibv_wc pending[64];
	unsigned pending_count;
};

static void complete(struct ibv_cq *cq, const struct ibv_wc *wc)
{
	struct queue *queue = (struct queue *)cq;

	pthread_mutex_lock(&queue->lock);
	queue->wc[queue->head++ & (QUEUE - 1)] = *wc;
	pthread_mutex_unlock(&queue->lock);
}

static int submit(struct pair *pair, uint64_t wr_id, unsigned opcode, unsigned flags, uint32_t rkey)
{
	static const enum ibv_wc_opcode done[] = { IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND,     IBV_WC_SEND,
						   IBV_WC_RDMA_READ,  IBV_WC_COMP_SWAP,  IBV_WC_FETCH_ADD };
	struct ibv_wc wc = { .wr_id = wr_id, .qp_num = pair->ex.qp_base.qp_num };

	if (pair->failed)
		wc.status = IBV_WC_WR_FLUSH_ERR;
	else if (rkey == BAD_KEY)
		wc.status = IBV_WC_REM_ACCESS_ERR, pair->failed = 1;
	/* Of what failed everything but these is undefined. */
	wc.opcode = wc.status ? 0x55 : opcode < 7 ? done[opcode] : 0;
	if (wc.status || flags & IBV_SEND_SIGNALED || pair->all_signal)
		complete(pair->ex.qp_base.send_cq, &wc);
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	for (; wr; wr = wr->next)
		if (submit((struct pair *)qp, wr->wr_id, wr->opcode, wr->send_flags, wr->wr.rdma.rkey)) {
			*bad = wr;
			return ENOMEM;
		}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return qp && wr && bad ? 0 : EINVAL;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	struct queue *queue = (struct queue *)cq;
	int n = 0;

	pthread_mutex_lock(&queue->lock);
	while (n < most && queue->tail != queue->head)
		wc[n++] = queue->wc[queue->tail++ & (QUEUE - 1)];
	pthread_mutex_unlock(&queue->lock);
	return n;
}

/* In one table with others, as providers have them: relocated, so that the file says where they are. */
static void *const ops[OPS_ENTRIES] = {
	[OPS_POLL_CQ] = (void *)poll_cq,
	[OPS_POST_RECV] = (void *)post_recv,
	[OPS_POST_SEND] = (void *)post_send,
};

/* The same by ibv_wr_*: an operation waits for its data, and all of them for the end of the batch. */
static void wr_start(struct ibv_qp_ex *qp)
{
	((struct pair *)qp)->pending_count = 0;
}

static void operation(struct ibv_qp_ex *qp, unsigned opcode, uint32_t rkey)
{
	struct pair *pair = (struct pair *)qp;
	struct ibv_wc *wc = &pair->pending[pair->pending_count++ % 64];

	*wc = (struct ibv_wc){ .wr_id = qp->wr_id, .opcode = opcode, .wc_flags = qp->wr_flags, .src_qp = rkey };
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	operation(qp, IBV_WR_RDMA_WRITE, rkey);
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	operation(qp, IBV_WR_RDMA_READ, rkey);
}

static void wr_send(struct ibv_qp_ex *qp)
{
	operation(qp, IBV_WR_SEND, 0);
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t length)
{
	((struct pair *)qp)->unsignaled += length;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *list)
{
	for (size_t i = 0; i < n; i++)
		((struct pair *)qp)->unsignaled += list[i].length;
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *address, size_t length)
{
	((struct pair *)qp)->unsignaled += length + 1;
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	struct pair *pair = (struct pair *)qp;

	for (unsigned i = 0; i < pair->pending_count; i++) {
		struct ibv_wc *wc = &pair->pending[i];
		submit(pair, wc->wr_id, wc->opcode, wc->wc_flags, wc->src_qp);
	}
	return 0;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	((struct pair *)qp)->pending_count = 0;
}

/* What a program asks for that works past libibverbs, as mlx5's (mlx5dv.h) has it: the memory of a queue. */
int mlx5dv_init_obj(void *object, uint64_t type)
{
	return object && type ? 0 : EINVAL;
}

struct ibv_context *standin_alloc_context(struct ibv_device *device)
{
	struct ibv_context *context = calloc(1, sizeof(*context));

	context->device = device;
	context->cmd_fd = context->async_fd = -1;
	verbs_set_ops(context, ops);
	return context;
}

struct ibv_qp *standin_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static struct {
		struct ibv_context *context;
		uint32_t last;
	} numbers[64];
	struct pair *pair = calloc(1, sizeof(*pair));
	struct ibv_qp *qp = &pair->ex.qp_base;
	unsigned i = 0;

	/* The numbers of each context's queue pairs begin anew: it is another device. */
	while (i < 63 && numbers[i].context && numbers[i].context != pd->context)
		i++;
	numbers[i].context = pd->context;
	qp->context = pd->context;
	qp->pd = pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->qp_type = attr->qp_type;
	qp->qp_num = 17 + numbers[i].last++;
	qp->state = IBV_QPS_RESET;
	pair->depth = attr->cap.max_send_wr;
	pair->all_signal = attr->sq_sig_all;
	pair->ex.wr_start = wr_start;
	pair->ex.wr_complete = wr_complete;
	pair->ex.wr_abort = wr_abort;
	pair->ex.wr_rdma_write = wr_rdma_write;
	pair->ex.wr_rdma_read = wr_rdma_read;
	pair->ex.wr_send = wr_send;
	pair->ex.wr_set_sge = wr_set_sge;
	pair->ex.wr_set_sge_list = wr_set_sge_list;
	pair->ex.wr_set_inline_data = wr_set_inline_data;
	return qp;
}

/* The same completions, one at a time. */
static int next_poll(struct ibv_cq_ex *cq)
{
	struct queue *queue = (struct queue *)cq;

	if (!poll_cq((struct ibv_cq *)cq, 1, &queue->present))
		return ENOENT;
	cq->status = queue->present.status;
	cq->wr_id = queue->present.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	return attr->comp_mask ? EINVAL : next_poll(cq);
}

static void end_poll(struct ibv_cq_ex *cq)
{
	((struct queue *)cq)->present.wr_id = 0;
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return ((struct queue *)cq)->present.opcode;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return ((struct queue *)cq)->present.byte_len;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return ((struct queue *)cq)->present.qp_num;
}

struct ibv_cq *standin_create_cq(struct ibv_context *context, int is_extended)
{
	struct queue *queue = calloc(1, sizeof(*queue));

	pthread_mutex_init(&queue->lock, NULL);
	queue->cq.context = context;
	if (is_extended) {
		const struct ibv_cq_init_attr_ex attr = { .cqe = QUEUE };

		queue->cq.start_poll = start_poll;
		queue->cq.next_poll = next_poll;
		queue->cq.end_poll = end_poll;
		queue->cq.read_opcode = read_opcode;
		queue->cq.read_byte_len = read_byte_len;
		queue->cq.read_qp_num = read_qp_num;
		if (ibv_cmd_create_cq_ex(context, &attr, &queue->cq))
			return NULL;
	}
	return (struct ibv_cq *)&queue->cq;
}

void standin_deliver(struct ibv_qp *qp, uint32_t bytes, int with_immediate)
{
	struct ibv_wc wc = {
		.qp_num = qp->qp_num,
		.byte_len = bytes,
		.opcode = with_immediate ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
	};

	complete(qp->recv_cq, &wc);
}
