/* Does with verbs what it is told, a line of standard input each, and says that it is done, with how long it took. */
#define _GNU_SOURCE
#include "standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MOST 200000

extern void standin_next_event(int type);

static struct ibv_context *contexts[64];
static struct ibv_pd *pds[64];
static struct ibv_cq *cqs[64], *receive_cqs[64];
static struct ibv_qp *qps[MOST];
static struct ibv_mr *mrs[MOST];
static unsigned n_contexts, n_qps, n_mrs;
static char memory[1 << 20];
static uint64_t next_id;

static void *found(const char *name)
{
	static void *provider;
	const char *path = getenv("STANDIN_PROVIDER");

	if (!provider)
		provider = dlopen(path ? path : "libstandin-rdmav34.so", RTLD_NOW);
	return dlsym(provider, name);
}

static struct ibv_cq *make_queue(unsigned device, int is_extended)
{
	return ((struct ibv_cq * (*)(struct ibv_context *, int)) found("standin_create_cq"))(contexts[device], is_extended);
}

static void open_devices(unsigned count)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (unsigned i = 0; i < count; i++, n_contexts++) {
		contexts[n_contexts] = ibv_open_device(list[n_contexts % 8]);
		if (!contexts[n_contexts])
			exit(1);
		pds[n_contexts] = ibv_alloc_pd(contexts[n_contexts]);
		cqs[n_contexts] = receive_cqs[n_contexts] = make_queue(n_contexts, 0);
	}
}

static struct ibv_qp *(*make_pair)(struct ibv_pd *, struct ibv_qp_init_attr *) = ibv_create_qp;

/* Queue pairs of a device, connected to the one before, up to a state. */
static void make_pairs(unsigned device, unsigned count, unsigned depth, int all_signal, int state)
{
	for (unsigned i = 0; i < count; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cqs[device], .recv_cq = receive_cqs[device], .qp_type = IBV_QPT_RC, .sq_sig_all = all_signal,
			.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 4, .max_recv_sge = 1 },
		};
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		struct ibv_qp *qp = qps[n_qps++] = make_pair(pds[device], &init);

		if (state >= IBV_QPS_INIT)
			ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
		attr = (struct ibv_qp_attr){
			.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = 4000 + qp->qp_num,
			.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 3 } },
		};
		memcpy(attr.ah_attr.grh.dgid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x09\0", 15);
		attr.ah_attr.grh.dgid.raw[15] = 2 + device;
		if (state >= IBV_QPS_RTR)
			ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN);
		attr.qp_state = IBV_QPS_RTS;
		if (state >= IBV_QPS_RTS)
			ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT);
	}
}

static unsigned poll(unsigned device, unsigned count)
{
	struct ibv_wc wc[16];
	unsigned sum = 0;
	int n;

	while (sum < count) {
		n = ibv_poll_cq(cqs[device], count - sum < 16 ? count - sum : 16, wc);
		if (n <= 0)
			break;
		sum += n;
	}
	return sum;
}

/* The same by the queue's own functions, reading 1: what a completion is of, 2: how long it is, 4: its queue pair. */
static unsigned take(struct ibv_cq *queue, unsigned count, unsigned what)
{
	struct ibv_poll_cq_attr attr = {};
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)queue;
	unsigned sum = 0;

	if (ibv_start_poll(cq, &attr))
		return 0;
	do {
		if (what & 1)
			ibv_wc_read_opcode(cq);
		if (what & 2)
			ibv_wc_read_byte_len(cq);
		if (what & 4)
			ibv_wc_read_qp_num(cq);
	} while (++sum < count && !ibv_next_poll(cq));
	ibv_end_poll(cq);
	return sum;
}

/* `ids` is how many numbers take turns, 0 for ever new ones. */
static void post(unsigned qp, unsigned opcode, unsigned count, unsigned bytes, unsigned signal_every, unsigned ids,
		 unsigned rkey)
{
	struct ibv_sge sge = { .addr = (uint64_t)(uintptr_t)memory, .length = bytes };
	struct ibv_send_wr *bad;

	for (unsigned i = 0; i < count; i++) {
		struct ibv_send_wr wr = {
			.wr_id = ids ? next_id++ % ids : ++next_id,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = signal_every && (i + 1) % signal_every == 0 ? IBV_SEND_SIGNALED : 0,
			.wr.rdma.rkey = rkey,
		};
		if (ibv_post_send(qps[qp], &wr, &bad))
			exit(2);
	}
}

/* A chain of requests, each with three parts. */
static void chain(unsigned qp, unsigned count, unsigned bytes)
{
	struct ibv_send_wr wr[64], *bad;
	struct ibv_sge sge[3] = { { .length = bytes }, { .length = bytes }, { .length = bytes } };

	for (unsigned i = 0; i < count; i++)
		wr[i] = (struct ibv_send_wr){ .wr_id = ++next_id, .next = i + 1 < count ? &wr[i + 1] : NULL,
					      .sg_list = sge, .num_sge = 3, .opcode = IBV_WR_SEND,
					      .send_flags = IBV_SEND_SIGNALED };
	if (ibv_post_send(qps[qp], wr, &bad))
		exit(2);
}

static void extended(unsigned qp, unsigned count, unsigned bytes)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qps[qp]);

	for (unsigned i = 0; i < count; i++) {
		ibv_wr_start(ex);
		ex->wr_id = ++next_id;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(ex, 1, 0);
		ibv_wr_set_sge(ex, 0, (uint64_t)(uintptr_t)memory, bytes);
		ibv_wr_complete(ex);
	}
}

/* Posts a request whose parts are nowhere, or more than any request has. */
static void lie(unsigned qp, unsigned parts)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_send_wr wr = { .wr_id = ++next_id, .sg_list = (void *)page, .num_sge = parts,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	munmap(page, 4096);
	ibv_post_send(qps[qp], &wr, &bad);
}

/* NCCL, or what stands in for it: communicators, and a collective of one which makes a queue pair. */
static void *comms[64], *nccl;
static unsigned comm;

static void *of_nccl(const char *name)
{
	if (!nccl && !(nccl = dlopen(getenv("STANDIN_NCCL"), RTLD_NOW)))
		exit(3);
	return dlsym(nccl, name);
}

static void make_comm(unsigned n)
{
	char id[128] = { n };

	if (((int (*)(void **, int, int, int, void *, void *))of_nccl("ncclCommInitRankScalable"))(&comms[n], 2, 0, 1, id, NULL))
		exit(3);
}

static void collective(unsigned n, unsigned stream)
{
	if (((int (*)(void *, void *, size_t, int, int, void *, void *))of_nccl("ncclAllReduce"))(NULL, NULL, 1, 0, 0, comms[n],
													 (void *)(uintptr_t)stream))
		exit(3);
}

static struct ibv_qp *make_by_nccl(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	*(void **)of_nccl("standin_create_qp") = ibv_create_qp;
	*(void **)of_nccl("standin_pd") = pd;
	*(void **)of_nccl("standin_attr") = attr;
	collective(comm, 0);
	*(void **)of_nccl("standin_create_qp") = NULL;
	return *(void **)of_nccl("standin_qp");
}

static struct ibv_qp_init_attr *wanted;
static struct ibv_pd *wanted_of;
static struct ibv_qp *found_within;

static void make_within(void *of, uint64_t count)
{
	found_within = ibv_create_qp(wanted_of, wanted);
}

/* While a collective goes on, and not by NCCL. */
static struct ibv_qp *make_beside(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	wanted_of = pd;
	wanted = attr;
	*(void **)of_nccl("standin_entered") = make_within;
	collective(comm, 0);
	*(void **)of_nccl("standin_entered") = NULL;
	return found_within;
}

/* In a group in which there is a collective of another communicator, too. */
static struct ibv_qp *make_in_group(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *made;

	((int (*)(void))of_nccl("ncclGroupStart"))();
	collective(comm + 1, 0);
	made = make_by_nccl(pd, attr);
	((int (*)(void))of_nccl("ncclGroupEnd"))();
	return made;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* What it has had of a CPU. */
static double spent(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(void)
{
	char line[256], what[32];
	unsigned a[7];

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("{\"event\": \"ready\", \"pid\": %d}\n", getpid());
	while (fgets(line, sizeof(line), stdin)) {
		double began = now(), spent_before = spent();
		unsigned result = 0;

		memset(a, 0, sizeof(a));
		if (sscanf(line, "%31s %u %u %u %u %u %u %u", what, &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6]) < 1)
			continue;
		if (!strcmp(what, "open"))
			open_devices(a[0]);
		else if (!strcmp(what, "pairs"))
			make_pairs(a[0], a[1], a[2], a[3], a[4]);
		else if (!strcmp(what, "nccl"))
			of_nccl("ncclCommInitRank");
		else if (!strcmp(what, "comm"))
			make_comm(a[0]);
		else if (!strcmp(what, "maker")) {
			/* Whoever makes the queue pairs that follow: 0 the program, else for which communicator, and how. */
			static struct ibv_qp *(*const makers[])(struct ibv_pd *, struct ibv_qp_init_attr *) = {
				ibv_create_qp, make_by_nccl, make_beside, make_in_group
			};
			make_pair = makers[a[0]];
			comm = a[1];
		} else if (!strcmp(what, "post"))
			post(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
		else if (!strcmp(what, "direct"))
			/* From now on it would work past libibverbs: nothing of it is seen. */
			result = ((int (*)(void *, uint64_t))found("mlx5dv_init_obj"))(qps[a[0]], 1);
		else if (!strcmp(what, "chain"))
			chain(a[0], a[1], a[2]);
		else if (!strcmp(what, "extended"))
			extended(a[0], a[1], a[2]);
		else if (!strcmp(what, "poll"))
			result = poll(a[0], a[1]);
		else if (!strcmp(what, "queue")) {
			/* What the queue pairs that follow complete in: one for both sides, or two. */
			cqs[a[0]] = receive_cqs[a[0]] = make_queue(a[0], 1);
			if (a[1])
				receive_cqs[a[0]] = make_queue(a[0], 1);
		} else if (!strcmp(what, "take"))
			result = take(cqs[a[0]], a[1], a[2]);
		else if (!strcmp(what, "take_received"))
			result = take(receive_cqs[a[0]], a[1], a[2]);
		else if (!strcmp(what, "spin")) {
			/* Posts and polls for so many milliseconds, with so many numbers taking turns. */
			while (now() - began < a[1] / 1000.0) {
				post(a[0], IBV_WR_RDMA_WRITE, 1, 64, 1, a[3], 0);
				for (unsigned i = 0; i < a[2]; i++)
					result += poll(0, 1);
			}
		} else if (!strcmp(what, "each"))
			for (unsigned i = 0; i < a[0]; i++)
				post(i, IBV_WR_SEND, 1, a[1], 0, 0, 0);
		else if (!strcmp(what, "deliver"))
			((void (*)(struct ibv_qp *, uint32_t, int))found("standin_deliver"))(qps[a[0]], a[1], a[2]);
		else if (!strcmp(what, "receive")) {
			struct ibv_recv_wr wr[2] = { { .next = &wr[1] }, {} }, *bad;
			ibv_post_recv(qps[a[0]], wr, &bad);
		} else if (!strcmp(what, "register"))
			mrs[n_mrs++] = a[1] == 0 ? ibv_reg_mr_iova2(pds[0], memory, a[0], 0, 0) :
				       a[1] == 1 ? (ibv_reg_mr)(pds[0], memory, a[0], 0) :
						   ibv_reg_dmabuf_mr(pds[0], 0, a[0], 0, 3, 0);
		else if (!strcmp(what, "deregister"))
			ibv_dereg_mr(mrs[a[0]]);
		else if (!strcmp(what, "destroy"))
			ibv_destroy_qp(qps[a[0]]);
		else if (!strcmp(what, "error") || !strcmp(what, "ready")) {
			struct ibv_qp_attr attr = { .qp_state = what[0] == 'e' ? IBV_QPS_ERR : IBV_QPS_RTS };
			ibv_modify_qp(qps[a[0]], &attr, IBV_QP_STATE);
		} else if (!strcmp(what, "event")) {
			struct ibv_async_event event;
			standin_next_event(a[0]);
			ibv_get_async_event(contexts[0], &event);
		} else if (!strcmp(what, "lie"))
			lie(a[0], a[1]);
		else if (!strcmp(what, "point")) {
			/* What posts is another function, or none, until it says so again. */
			uintptr_t at = (uintptr_t)contexts[0]->ops.post_send ^ a[0];
			memcpy(&contexts[0]->ops.post_send, &at, sizeof(at));
		} else if (!strcmp(what, "pause"))
			usleep(a[0] * 1000);
		else if (!strcmp(what, "quit"))
			break;
		printf("{\"event\": \"done\", \"result\": %u, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", result, now() - began,
		       spent() - spent_before);
	}
	return 0;
}
