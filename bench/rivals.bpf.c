// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What ours is compared with: programs that do nothing, one that only reads what has to be counted, and one that sends a
 * record for each call. */
#include "lib/caller.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Written here, emptied by the benchmark. Larger than a round fills, so that no record is refused, which would
 * be cheaper than sending it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} ring SEC(".maps");

/* What agents that send every launch put in: 80 bytes. */
struct record {
	u64 time_ns;
	u64 pid_tgid;
	u64 function;
	u32 grid[3];
	u32 block[3];
	u64 stream;
	u8 comm[16];
	u64 return_address;
};
_Static_assert(sizeof(struct record) == 80, "the record's size is part of what is compared");

SEC("uprobe")
int empty(struct pt_regs *ctx)
{
	return 0;
}

SEC("uretprobe")
int empty_return(struct pt_regs *ctx)
{
	return 0;
}

volatile u64 was_read;

/* Who calls, from which site, and the block's last dimension and the stream, which lie on the stack; nothing is counted. */
SEC("uprobe")
int reads(struct pt_regs *ctx)
{
	struct caller who;
	u64 sum = bpf_get_attach_cookie(ctx);

	if (!identify(&who))
		return 0;
	sum += who.pid_tgid + who.exec_id + who.born_ns;
#if defined(__TARGET_ARCH_x86)
	u64 stack[3] = {};
	bpf_probe_read_user(stack, sizeof(stack), (void *)ctx->sp + 8);
	sum += ctx->di + ctx->si + ctx->dx + ctx->cx + ctx->r8 + ctx->r9 + stack[0] + stack[2];
#else
	u64 stream = 0;
	bpf_probe_read_user(&stream, sizeof(stream), (void *)ctx->sp);
	sum += ctx->regs[0] + ctx->regs[1] + ctx->regs[2] + ctx->regs[3] + ctx->regs[4] + ctx->regs[5] + ctx->regs[6] +
	       stream;
#endif
	was_read = sum;
	return 0;
}

/* cuLaunchKernel's arguments; x86-64 and arm64 differ from the seventh on. */
SEC("uprobe")
int record(struct pt_regs *ctx)
{
	struct record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);

	if (!record)
		return 0;
	record->time_ns = bpf_ktime_get_ns();
	record->pid_tgid = bpf_get_current_pid_tgid();
	bpf_get_current_comm(record->comm, sizeof(record->comm));
#if defined(__TARGET_ARCH_x86)
	u64 stack[4] = {};
	bpf_probe_read_user(stack, sizeof(stack), (void *)ctx->sp);
	record->function = ctx->di;
	record->grid[0] = ctx->si;
	record->grid[1] = ctx->dx;
	record->grid[2] = ctx->cx;
	record->block[0] = ctx->r8;
	record->block[1] = ctx->r9;
	record->block[2] = stack[1];
	record->stream = stack[3];
	record->return_address = stack[0];
#else
	record->function = ctx->regs[0];
	record->grid[0] = ctx->regs[1];
	record->grid[1] = ctx->regs[2];
	record->grid[2] = ctx->regs[3];
	record->block[0] = ctx->regs[4];
	record->block[1] = ctx->regs[5];
	record->block[2] = ctx->regs[6];
	record->stream = 0;
	record->return_address = ctx->regs[30];
	bpf_probe_read_user(&record->stream, sizeof(record->stream), (void *)ctx->sp);
#endif
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}
