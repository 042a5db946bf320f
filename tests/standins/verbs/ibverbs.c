/* libibverbs without a kernel: the functions, versions and structures of the real one, devices of its own. */
#define _GNU_SOURCE
#include "standin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 8

static struct ibv_device devices[DEVICES];
static struct ibv_context *(*alloc_context)(struct ibv_device *);
static struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
static __thread int next_event;

#undef ibv_reg_mr
#undef ibv_query_port

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));

	for (int i = 0; i < DEVICES; i++) {
		snprintf(devices[i].name, sizeof(devices[i].name), "standin%d", i);
		list[i] = &devices[i];
	}
	if (count)
		*count = DEVICES;
	return list;
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

void verbs_set_ops(struct ibv_context *context, void *const *ops)
{
	context->ops.poll_cq = (__typeof__(context->ops.poll_cq))ops[OPS_POLL_CQ];
	context->ops.post_recv = (__typeof__(context->ops.post_recv))ops[OPS_POST_RECV];
	context->ops.post_send = (__typeof__(context->ops.post_send))ops[OPS_POST_SEND];
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if (!alloc_context) {
		const char *path = getenv("STANDIN_PROVIDER");
		void *provider = dlopen(path ? path : "libstandin-rdmav34.so", RTLD_NOW);

		if (!provider) {
			fprintf(stderr, "%s\n", dlerror());
			return NULL;
		}
		*(void **)&alloc_context = dlsym(provider, "standin_alloc_context");
		*(void **)&create_qp = dlsym(provider, "standin_create_qp");
	}
	return alloc_context(device);
}

int ibv_close_device(struct ibv_context *context)
{
	free(context);
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = context;
	return pd;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return create_qp(pd, attr);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_STATE) {
		if (attr->qp_state > IBV_QPS_ERR)
			return EINVAL;
		qp->state = attr->qp_state;
	}
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	memset(qp, 0xa5, sizeof(*qp));
	free(qp);
	return 0;
}

int ibv_cmd_create_cq_ex(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr, struct ibv_cq_ex *cq)
{
	cq->context = context;
	cq->cqe = attr->cqe;
	return 0;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

static struct ibv_mr *registered(struct ibv_pd *pd, void *address, size_t length)
{
	struct ibv_mr *mr;

	if (!length) {
		errno = EINVAL;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = address;
	mr->length = length;
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
	return registered(pd, address, length);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned access)
{
	return registered(pd, address, length);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	return registered(pd, NULL, length);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

void standin_next_event(int type)
{
	next_event = type;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	event->event_type = next_event;
	return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return (struct ibv_qp_ex *)qp;
}
