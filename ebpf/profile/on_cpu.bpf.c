// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Program of the CPU's timer: which code runs? */
#include "abi/programs.h"
#include "abi/samples.h"
#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "profile/stacks.bpf.h"

struct bpf_perf_event_data {
	struct pt_regs regs;
	u64 sample_period;
	u64 addr;
};

#define USER_SPACE_END 0x0000800000000000ULL

static __always_inline int take_running(struct bpf_perf_event_data *ctx, int has_owner)
{
	struct unwind_process *process;
	struct stack_sample *s;
	struct caller who;
	u64 pc, sp, fp, kernel = 0;

	if (!identify(&who))
		return 0;
	process = unwindable(&who);
	if (!process)
		return 0;
#if defined(__TARGET_ARCH_x86)
	pc = REGISTER(&ctx->regs, ip);
	sp = REGISTER(&ctx->regs, sp);
	fp = REGISTER(&ctx->regs, bp);
#else
	pc = REGISTER(&ctx->regs, pc);
	sp = REGISTER(&ctx->regs, sp);
	fp = REGISTER(&ctx->regs, regs[29]);
#endif
	if (pc >= USER_SPACE_END) {
		/* The kernel ran for it: its user registers are where it entered. */
		struct task_struct *task = (void *)bpf_get_current_task_btf();
		struct pt_regs *user = (void *)bpf_task_pt_regs((void *)task);
		kernel = 1;
		pc = INSTRUCTION(user);
		sp = STACK_POINTER(user);
		fp = FRAME_POINTER(user);
	}
	/* Kernels before 6.1 let the timer into no table that allocates; and it comes to nobody more often than to others. */
	s = bpf_ringbuf_reserve(&samples, sizeof(*s), 0);
	if (!s) {
		lose_of(NULL, LOSS_EVENTS_FULL);
		REMAIN(&who, SAMPLE_CPU, 0, 1, 1);
		return 0;
	}
	fill_head(s, &who, SAMPLE_CPU, 0, bpf_ktime_get_ns(), kernel);
	s->value = 1;
	if (has_owner)
		note_owner(s, 1);
	unwind(s, process, pc, sp, fp, 0);
	submit_sample(s);
	return 0;
}

SEC("perf_event")
int profile_cpu(struct bpf_perf_event_data *ctx)
{
	return take_running(ctx, 0);
}

/* Where requests are followed. Apart, as kernels before 6.1, which cannot follow them, let the timer into none of their tables. */
SEC("perf_event")
int profile_cpu_of_requests(struct bpf_perf_event_data *ctx)
{
	return take_running(ctx, 1);
}
