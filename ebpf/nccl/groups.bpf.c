// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Groups of calls: what was asked for within one is submitted when the outermost ends. And when do threads end? */
#include "abi/nccl.h"
#include "nccl/arrivals.bpf.h"
#include "nccl/rows.bpf.h"
#include "nccl/threads.bpf.h"

#define MOST_GROUPS 1024 /* one in another: more are a mistake */

SEC("uprobe")
int group_begins(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct nccl_thread *t;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = meet_nccl_thread(&who);
	if (!t)
		lose(LOSS_CALLS_FULL);
	else if (!is_inside(t, ctx, NCCL_FUNCTION(cookie)) && t->groups < MOST_GROUPS)
		t->groups++;
	return 0;
}

SEC("uprobe")
int group_ends(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct nccl_thread *t;
	struct nccl_call *call;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = nccl_thread_of(&who);
	if (!t || is_inside(t, ctx, NCCL_FUNCTION(cookie)) || !t->groups)
		return 0;
	if (--t->groups)
		return 0;
	call = begin_call(t, ctx, NCCL_FUNCTION(cookie));
	if (call)
		call->sequence = t->grouped;
	t->grouped = 0;
	return 0;
}

SEC("uretprobe")
int group_ended(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	struct nccl_row_key key = {};
	struct nccl_arrival arrival = {};
	struct nccl_thread *t;
	struct nccl_call *call;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = nccl_thread_of(&who);
	call = t ? end_call(t, ctx, NCCL_FUNCTION(cookie)) : NULL;
	if (!call)
		return 0;
	key.tgid = who.tgid;
	key.exec_id = who.exec_id;
	key.rank = NCCL_UNKNOWN_RANK;
	key.family = NCCL_GROUPS;
	key.function = NCCL_FUNCTION(cookie);
	key.datatype = NCCL_NO_DATATYPE;
	key.reduction = NCCL_NO_REDUCTION;
	key.bucket = duration_bucket(now - call->start_ns);
	count_nccl(&key, 0, now - call->start_ns);
	if (!call->sequence)
		return 0;
	arrival.tgid = who.tgid;
	arrival.exec_id = who.exec_id;
	arrival.tid = (u32)who.pid_tgid;
	arrival.entered_ns = call->start_ns;
	arrival.returned_ns = now;
	arrival.flags = NCCL_ARRIVAL_GROUP;
	arrive(&arrival);
	return 0;
}

static __always_inline int end_nccl_thread(void)
{
	struct nccl_thread *t;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = bpf_map_lookup_elem(&nccl_threads, &who.task);
	if (t)
		take_out(&nccl_threads, TABLE_NCCL_THREADS, t->tgid, t->exec_id, &who.task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int nccl_thread_ends(u64 *ctx)
{
	return end_nccl_thread();
}

/* The calling thread, the only one left, has become another program's first. */
SEC("tp_btf/sched_process_exec")
int nccl_program_begins(u64 *ctx)
{
	return end_nccl_thread();
}
