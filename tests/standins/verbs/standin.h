/* What the stand-ins of libibverbs and of a provider say to each other, and programs that test to them. */
#ifndef STANDIN_H
#define STANDIN_H

#include <infiniband/verbs.h>

#define OPS_ENTRIES 96

/* As rdma-core 35 to 58 has it: poll_cq, post_recv and post_send are entries 53 to 55 of struct verbs_context_ops. */
enum { OPS_POLL_CQ = 53, OPS_POST_RECV, OPS_POST_SEND };

struct ibv_context *standin_alloc_context(struct ibv_device *device);
struct ibv_qp *standin_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
void verbs_set_ops(struct ibv_context *context, void *const *ops);

/* A completion queue: also, where that is asked for, with functions of its own (ibv_create_cq_ex). */
struct ibv_cq *standin_create_cq(struct ibv_context *context, int is_extended);

/* What providers call for such a one. */
int ibv_cmd_create_cq_ex(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr, struct ibv_cq_ex *cq);

/* As if the other side had sent something: what is received next. */
void standin_deliver(struct ibv_qp *qp, uint32_t bytes, int with_immediate);

#endif
