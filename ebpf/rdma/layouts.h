/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How libibverbs lays out what programs share with it: rdma-core's libibverbs/verbs.h, whose ABI is stable since 1.1. */
#ifndef OTEL_GPU_RDMA_LAYOUTS_H
#define OTEL_GPU_RDMA_LAYOUTS_H

#include "abi/types.h"

struct verbs_context {
	u64 device;
	u64 ops_above[11];
	u64 poll_cq; /* 96 */
	u64 ops_between[13];
	u64 post_send; /* 208 */
	u64 post_recv;
};
_Static_assert(__builtin_offsetof(struct verbs_context, poll_cq) == 96, "struct ibv_context");
_Static_assert(__builtin_offsetof(struct verbs_context, post_send) == 208, "struct ibv_context");

#define DEVICE_NAME_AT 24

struct verbs_qp {
	u64 context;
	u64 qp_context;
	u64 pd;
	u64 send_cq;
	u64 recv_cq;
	u64 srq;
	u32 handle;
	u32 qp_num; /* 52 */
	u32 state;
	u32 qp_type;
};
_Static_assert(__builtin_offsetof(struct verbs_qp, qp_num) == 52, "struct ibv_qp");

/* struct ibv_qp_ex */
#define QP_EX_WR_ID 168
#define QP_EX_FUNCTIONS 184
#define QP_EX_COUNT 20
#define QP_EX_START 17
#define QP_EX_COMPLETE 18

/* struct ibv_cq_ex: from its status on, */
#define CQ_EX_STATUS 132
struct verbs_cq_ex_head {
	u32 status;
	u64 wr_id; /* 136 */
} __attribute__((packed));
_Static_assert(__builtin_offsetof(struct verbs_cq_ex_head, wr_id) == 4, "struct ibv_cq_ex");

/* and its functions: start_poll, next_poll, end_poll, read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num. */
#define CQ_EX_FUNCTIONS 144
#define CQ_EX_COUNT 8

struct verbs_wr {
	u64 wr_id;
	u64 next;
	u64 sg_list;
	u32 num_sge;
	u32 opcode;
	u32 send_flags;
};

struct verbs_sge {
	u64 address;
	u32 length;
	u32 lkey;
};

struct verbs_wc {
	u64 wr_id;
	u32 status;
	u32 opcode;
	u32 vendor_err;
	u32 byte_len;
	u32 imm_data;
	u32 qp_num;
};
#define WC_SIZE 48

/* The beginnings of struct ibv_qp_init_attr and ibv_qp_init_attr_ex, which are alike. */
struct verbs_qp_init {
	u64 qp_context;
	u64 send_cq;
	u64 recv_cq;
	u64 srq;
	u32 max_send_wr;
	u32 cap_rest[4];
	u32 qp_type;
	u32 sq_sig_all;
};
_Static_assert(__builtin_offsetof(struct verbs_qp_init, qp_type) == 52, "struct ibv_qp_init_attr");

/* The beginning of struct ibv_qp_attr, */
struct verbs_attr_head {
	u32 qp_state;
	u32 cur_qp_state;
	u32 path_mtu;
	u32 numbers[4];
	u32 dest_qp_num; /* 28 */
};

/* and all of it that matters. */
struct verbs_qp_attr {
	u32 qp_state;
	u32 cur_qp_state;
	u32 path_mtu;
	u32 numbers[4];
	u32 dest_qp_num; /* 28 */
	u32 access;
	u32 cap[5];
	u8 dgid[16]; /* 56 */
	u32 flow_label;
	u8 sgid_index; /* 76 */
	u8 hop_limit;
	u8 traffic_class;
	u8 grh_pad[1];
	u16 dlid; /* 80 */
	u8 sl;
	u8 src_path_bits;
	u8 static_rate;
	u8 is_global; /* 85 */
	u8 port_num;
	u8 ah_pad;
	u8 between[41];
	u8 initial_port; /* 129 */
};
_Static_assert(__builtin_offsetof(struct verbs_qp_attr, dgid) == 56, "struct ibv_qp_attr");
_Static_assert(__builtin_offsetof(struct verbs_qp_attr, sgid_index) == 76, "struct ibv_qp_attr");
_Static_assert(__builtin_offsetof(struct verbs_qp_attr, dlid) == 80, "struct ibv_qp_attr");
_Static_assert(__builtin_offsetof(struct verbs_qp_attr, is_global) == 85, "struct ibv_qp_attr");
_Static_assert(__builtin_offsetof(struct verbs_qp_attr, initial_port) == 129, "struct ibv_qp_attr");

#define ATTR_STATE 1
#define ATTR_PORT 0x20
#define ATTR_AV 0x80
#define ATTR_PATH_MTU 0x100
#define ATTR_DEST_QPN 0x100000
#define QP_RESET 0
#define QP_INIT 1
#define QP_ERROR 6

#define SEND_SIGNALED 2
#define WC_RECEIVE 128

/* struct ibv_mr */
#define MR_LENGTH_AT 24

#endif
