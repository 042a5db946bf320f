/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's types of sockets and system calls, as far as they are read. */
#ifndef OTEL_GPU_INFERENCE_KERNEL_SOCKETS_H
#define OTEL_GPU_INFERENCE_KERNEL_SOCKETS_H

#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

typedef struct {
	s64 counter;
} atomic64_t;

struct in6_addr {
	u8 bytes[16];
};

struct net;

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	possible_net_t skc_net;
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport; /* in network byte order */
	u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
} CO_RE;

struct sk_buff {
	struct sk_buff *next;
	unsigned int len;
	char cb[48];
} CO_RE;

struct sk_buff_head {
	struct sk_buff *next;
	u32 qlen;
} CO_RE;

struct socket;

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
	struct sk_buff_head sk_receive_queue;
	u16 sk_type;
} CO_RE;

struct tcp_sock {
	u32 copied_seq; /* the next byte that is read */
	u32 write_seq;	/* and the next that is sent */
} CO_RE;

/* A port that is in use. */
struct inet_bind_bucket {
	s8 fastreuse; /* below 0: it was chosen for sockets that connect */
} CO_RE;

struct inet_connection_sock {
	struct inet_bind_bucket *icsk_bind_hash;
} CO_RE;

struct unix_sock {
	struct unix_address *addr; /* where it was bound, or who accepted it; NULL: nowhere */
	struct sock *peer;
} CO_RE;

struct unix_skb_parms {
	u32 consumed; /* bytes at its beginning that were read */
} CO_RE;

struct socket {
	struct sock *sk;
} CO_RE;

struct inode {
	unsigned long i_ino;
} CO_RE;

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
} CO_RE;

/* What a descriptor stands for. */
struct file___private {
	void *private_data;
} CO_RE;

struct fdtable {
	struct file___private **fd;
} CO_RE;

struct files_struct {
	struct fdtable *fdt;
} CO_RE;

struct task_struct___files {
	struct files_struct *files;
} CO_RE;

#define TYPE_STREAM 1

#define FAMILY_UNIX 1
#define FAMILY_INET 2
#define FAMILY_INET6 10

/* enum in include/net/tcp_states.h */
#define TCP_ESTABLISHED 1
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE 7
#define TCP_LAST_ACK 9

#define PEEK 2 /* MSG_PEEK: what is read stays */

/* What a system call was asked with; a number that is not read here is never had. */
struct system_call {
	u32 number;
	u64 arguments[4];
};

#if defined(__TARGET_ARCH_x86)
#define CALL_READ 0
#define CALL_WRITE 1
#define CALL_READV 19
#define CALL_WRITEV 20
#define CALL_SENDTO 44
#define CALL_RECVFROM 45
#define CALL_SENDMSG 46
#define CALL_RECVMSG 47
static __always_inline void read_system_call(struct system_call *c)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	c->number = regs->orig_ax;
	c->arguments[0] = regs->di;
	c->arguments[1] = regs->si;
	c->arguments[2] = regs->dx;
	c->arguments[3] = regs->r10;
}
#else
#define CALL_READ 63
#define CALL_WRITE 64
#define CALL_READV 65
#define CALL_WRITEV 66
#define CALL_SENDTO 206
#define CALL_RECVFROM 207
#define CALL_SENDMSG 211
#define CALL_RECVMSG 212
struct pt_regs___numbered {
	s32 syscallno;
} CO_RE;
static __always_inline void read_system_call(struct system_call *c)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	c->number = BPF_CORE_READ((struct pt_regs___numbered *)regs, syscallno);
	c->arguments[0] = regs->regs[0];
	c->arguments[1] = regs->regs[1];
	c->arguments[2] = regs->regs[2];
	c->arguments[3] = regs->regs[3];
}
#endif

/* The number of a socket's inode, which the kernel gives out one after another; 0: nobody has it open any more. */
static __always_inline u64 socket_number(struct sock *sk)
{
	struct socket_alloc *socket = (void *)BPF_CORE_READ(sk, sk_socket);

	return socket ? BPF_CORE_READ(socket, vfs_inode.i_ino) : 0;
}

#define NUMBERED_SOCKET (1ULL << 62) /* no address looks so */

/* The end of a connection over TCP is always seen, so its socket's address will do; any other has a number. */
static __always_inline u64 socket_key(struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_family) == FAMILY_UNIX ? socket_number(sk) | NUMBERED_SOCKET : (u64)sk;
}

struct io_vector {
	u64 base;
	u64 bytes;
};

struct message_header {
	u64 name;
	u32 name_bytes;
	u32 pad;
	u64 vectors;
	u64 count;
};

#endif
