// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Groups of calls: what was asked for within one is submitted when the outermost ends. And when do threads end? */
#include "abi/nccl.h"
#include "nccl/arrivals.bpf.h"
#include "nccl/connecting.bpf.h"
#include "nccl/pending.bpf.h"
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

static __noinline int count_group(const struct caller *who, u64 start_ns, u64 now, u32 function)
{
	struct nccl_row_key key = {
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.rank = NCCL_UNKNOWN_RANK,
		.family = NCCL_GROUPS,
		.function = function,
		.datatype = NCCL_NO_DATATYPE,
		.reduction = NCCL_NO_REDUCTION,
		.bucket = duration_bucket(now - start_ns),
	};

	count_nccl(&key, 0, now - start_ns);
	return 0;
}

static __noinline int tell_group(const struct caller *who, u64 start_ns, u64 now)
{
	struct nccl_arrival arrival = {
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.tid = (u32)who->pid_tgid,
		.entered_ns = start_ns,
		.returned_ns = now,
		.flags = NCCL_ARRIVAL_GROUP,
	};

	arrive(&arrival);
	return 0;
}

SEC("uretprobe")
int group_ended(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	struct nccl_thread *t;
	struct nccl_call *call;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = nccl_thread_of(&who);
	call = t ? end_call(t, ctx, NCCL_FUNCTION(cookie)) : NULL;
	if (!call)
		return 0;
	connect_group_ends(&who, t, RESULT(ctx));
	count_group(&who, call->start_ns, now, NCCL_FUNCTION(cookie));
	submit_group(call->start_ns, RESULT(ctx) != 0);
	if (call->sequence)
		tell_group(&who, call->start_ns, now);
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
