/* Two devices, connected with each other, and what goes between them. Does what it is told, a line of standard input each:
 *
 *     write|read|send COUNT BYTES   post so many, each signalled
 *     sparse COUNT BYTES            writes of which every eighth is signalled
 *     extended COUNT BYTES          writes by ibv_wr_rdma_write
 *     forbidden                     a write with a key that the peer does not have
 *     queue                         from now on the first device's completions are asked for by ibv_start_poll
 *     unready                       a send for which the peer has posted no receive
 *
 * and says for each how many completions came, by status: {"completions": {"0": 500}}. The last two end the connection, and
 * the next line finds a new one. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 64
#define LARGEST (1 << 16)
#define STATUSES 32

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	int is_extended;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	char memory[LARGEST];
};

static struct side sides[2];

static void die(const char *what)
{
	fprintf(stderr, "traffic: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void open_side(struct side *side, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			side->context = ibv_open_device(list[i]);
	if (!side->context)
		die(name);
	side->pd = ibv_alloc_pd(side->context);
	side->cq = ibv_create_cq(side->context, 4 * DEPTH, NULL, NULL, 0);
	/* By a variable: the macro calls another function where it knows the flags. */
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	side->mr = ibv_reg_mr(side->pd, side->memory, LARGEST, access);
	if (!side->pd || !side->cq || !side->mr || ibv_query_gid(side->context, 1, 1, &side->gid))
		die("setting up a device");
}

/* Have it complete in a queue that has functions of its own. */
static void extend_queue(struct side *side)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 4 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *made = ibv_create_cq_ex(side->context, &attr);

	if (!made)
		die("ibv_create_cq_ex");
	side->cq = ibv_cq_ex_to_cq(made);
	side->is_extended = 1;
}

static void make_pair(struct side *side)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
		.pd = side->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};

	if (side->qp)
		ibv_destroy_qp(side->qp);
	side->qp = ibv_create_qp_ex(side->context, &attr);
	if (!side->qp)
		die("ibv_create_qp_ex");
}

static void connect_to(struct side *side, const struct side *peer)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = 1, .hop_limit = 1}}};
	/* 16: a quarter of a second, since the emulated machine is slow to answer. */
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 16, .retry_cnt = 7, .rnr_retry = 3, .max_rd_atomic = 1};

	if (ibv_modify_qp(side->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ||
	    ibv_modify_qp(side->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
	    ibv_modify_qp(side->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					      IBV_QP_MAX_QP_RD_ATOMIC))
		die("ibv_modify_qp");
}

static void connect_both(void)
{
	for (int i = 0; i < 2; i++)
		make_pair(&sides[i]);
	for (int i = 0; i < 2; i++)
		connect_to(&sides[i], &sides[!i]);
}

/* The same by the queue's own functions. */
static void take_extended(struct side *side, unsigned wanted, unsigned *by_status)
{
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)side->cq;
	struct ibv_poll_cq_attr attr = {};

	while (wanted) {
		int failed = ibv_start_poll(cq, &attr);

		if (failed == ENOENT)
			continue;
		if (failed)
			die("ibv_start_poll");
		do {
			if (ibv_wc_read_qp_num(cq) != side->qp->qp_num)
				die("ibv_wc_read_qp_num");
			if (!cq->status)
				ibv_wc_read_opcode(cq);
			by_status[cq->status % STATUSES]++;
			wanted--;
		} while (wanted && !ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
}

/* Take completions until so many came, and count them by status. */
static void take(struct side *side, unsigned wanted, unsigned *by_status)
{
	struct ibv_wc done[16];

	if (side->is_extended) {
		take_extended(side, wanted, by_status);
		return;
	}
	while (wanted) {
		int n = ibv_poll_cq(side->cq, 16, done);

		if (n < 0)
			die("ibv_poll_cq");
		for (int i = 0; i < n; i++, wanted--)
			by_status[done[i].status % STATUSES]++;
	}
}

static void post(enum ibv_wr_opcode opcode, unsigned bytes, int signalled, uint32_t rkey, uint64_t id)
{
	struct side *from = &sides[0], *to = &sides[1];
	struct ibv_sge piece = {.addr = (uintptr_t)from->memory, .length = bytes, .lkey = from->mr->lkey};
	struct ibv_send_wr request = {.wr_id = id, .sg_list = &piece, .num_sge = 1, .opcode = opcode,
		.send_flags = signalled ? IBV_SEND_SIGNALED : 0,
		.wr.rdma = {.remote_addr = (uintptr_t)to->memory, .rkey = rkey}}, *bad;

	if (ibv_post_send(from->qp, &request, &bad))
		die("ibv_post_send");
}

static void post_extended(unsigned bytes, uint64_t id)
{
	struct side *from = &sides[0], *to = &sides[1];
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(from->qp);

	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, to->mr->rkey, (uintptr_t)to->memory);
	ibv_wr_set_sge(qp, from->mr->lkey, (uintptr_t)from->memory, bytes);
	if (ibv_wr_complete(qp))
		die("ibv_wr_complete");
}

static void receive_one(struct side *side)
{
	struct ibv_sge piece = {.addr = (uintptr_t)side->memory, .length = LARGEST, .lkey = side->mr->lkey};
	struct ibv_recv_wr request = {.sg_list = &piece, .num_sge = 1}, *bad;

	if (ibv_post_recv(side->qp, &request, &bad))
		die("ibv_post_recv");
}

static void run(const char *what, unsigned count, unsigned bytes, unsigned *by_status)
{
	unsigned received[STATUSES] = {};
	static uint64_t id;

	if (!strcmp(what, "forbidden")) {
		post(IBV_WR_RDMA_WRITE, 8, 1, sides[1].mr->rkey ^ 0x5500, id++);
		take(&sides[0], 1, by_status);
		connect_both();
	} else if (!strcmp(what, "queue")) {
		extend_queue(&sides[0]);
		connect_both();
	} else if (!strcmp(what, "unready")) {
		post(IBV_WR_SEND, 8, 1, 0, id++);
		take(&sides[0], 1, by_status);
		connect_both();
	}
	for (unsigned i = 0; i < count; i++) {
		int last = i + 1 == count;

		if (!strcmp(what, "send")) {
			receive_one(&sides[1]);
			post(IBV_WR_SEND, bytes, 1, 0, id++);
			take(&sides[0], 1, by_status);
			take(&sides[1], 1, received);
		} else if (!strcmp(what, "sparse")) {
			int signalled = i % 8 == 7 || last;

			post(IBV_WR_RDMA_WRITE, bytes, signalled, sides[1].mr->rkey, id++);
			if (signalled)
				take(&sides[0], 1, by_status);
		} else if (!strcmp(what, "extended")) {
			post_extended(bytes, id++);
			take(&sides[0], 1, by_status);
		} else {
			post(!strcmp(what, "read") ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, bytes, 1, sides[1].mr->rkey, id++);
			take(&sides[0], 1, by_status);
		}
	}
}

int main(void)
{
	char line[128], what[32];

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("{\"event\": \"ready\"}");
	while (fgets(line, sizeof line, stdin)) {
		unsigned count = 0, bytes = 0, by_status[STATUSES] = {};

		if (sscanf(line, "%31s %u %u", what, &count, &bytes) < 1 || bytes > LARGEST)
			return 2;
		if (!strcmp(what, "connect")) {
			open_side(&sides[0], "rxe0");
			open_side(&sides[1], "rxe1");
			connect_both();
		} else {
			run(what, count, bytes, by_status);
		}
		printf("{\"queue_pair\": %u, \"peer\": %u, \"completions\": {", sides[0].qp->qp_num, sides[1].qp->qp_num);
		for (int i = 0, some = 0; i < STATUSES; i++)
			if (by_status[i])
				printf("%s\"%d\": %u", some++ ? ", " : "", i, by_status[i]);
		puts("}}");
	}
	return 0;
}
