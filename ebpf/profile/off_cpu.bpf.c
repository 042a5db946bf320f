// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of the scheduler: which code waits off its CPU? */
#include "abi/programs.h"
#include "abi/samples.h"
#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "profile/off_cpu_waits.bpf.h"
#include "profile/stacks.bpf.h"

/* Set before loading. */
const volatile u64 off_cpu_min_ns = 1000000; /* shorter waits off the CPU are not counted */

/* Most waits are short and come to nothing: more walks than stacks are wanted, for what is long to have its own. */
#define OFF_CPU_BUDGET (5 * BUDGET)

#define PF_EXITING 4 /* include/linux/sched.h */

/* The stack is taken as the thread goes, when nobody knows yet for how long: afterwards it cannot be read. The
 * budget is one of walks, so which waits have a stack does not depend on how long they were. */
SEC("tp_btf/sched_switch")
int profile_switch(u64 *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct unwind_process *process;
	struct sampler *sampler;
	struct pt_regs *user;
	struct caller who;
	struct off_cpu_wait *wait;

	/* Preempted, or woken in the same moment: ready to run. Or about to end. */
	if (ctx[0] || !task->__state || task->flags & PF_EXITING)
		return 0;
	if (!identify(&who))
		return 0;
	process = unwindable(&who);
	if (!process)
		return 0;
	wait = off_cpu_wait_of(task, who.tgid, who.exec_id);
	if (!wait) {
		lose_of(program_of(&who), LOSS_CALLS_FULL);
		return 0;
	}
	wait->who = who;
	wait->is_taken = 0;
	sampler = sampler_of(&who, SAMPLE_OFF_CPU);
	if (!sampler || count_down(sampler, OFF_CPU_BUDGET)) {
		user = (void *)bpf_task_pt_regs((void *)task);
		fill_head(&wait->sample, &who, SAMPLE_OFF_CPU, 0, bpf_ktime_get_ns(), 0);
		note_owner(&wait->sample, 0);
		unwind(&wait->sample, process, INSTRUCTION(user), STACK_POINTER(user), FRAME_POINTER(user), 0);
		wait->is_taken = 1;
	}
	wait->start_ns = bpf_ktime_get_ns();
	return 0;
}

/* Somebody ended the wait: from here on the thread is ready to run. */
SEC("tp_btf/sched_wakeup")
int profile_wakeup(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct off_cpu_wait *wait = bpf_task_storage_get(&off_cpu_waits, task, 0, 0);
	struct sampled_thread *t;
	struct program *program;
	struct stack_sample *s = NULL;
	struct sampler *sampler;
	u64 ns, value, calls = 1;

	if (!wait || !wait->start_ns)
		return 0;
	ns = bpf_ktime_get_ns() - wait->start_ns;
	wait->start_ns = 0;
	if (ns < off_cpu_min_ns)
		return 0;
	t = sampled_thread_of(&wait->who);
	sampler = t ? sampler_at(t, SAMPLE_OFF_CPU) : NULL;
	value = ns;
	if (sampler) {
		ready(sampler);
		value += sampler->value;
		calls += sampler->calls;
		sampler->value = wait->is_taken ? 0 : value;
		sampler->calls = wait->is_taken ? 0 : calls;
	}
	if (!wait->is_taken)
		return 0;
	program = program_of(&wait->who);
	if (!program || may_send(&samples, &program->samples, sizeof(*s)))
		s = bpf_ringbuf_reserve(&samples, sizeof(*s), 0);
	if (!s) {
		lose_of(program, LOSS_EVENTS_FULL);
		keep(sampler, value, calls);
		return 0;
	}
	bpf_probe_read_kernel(s, sizeof(*s), &wait->sample);
	s->time_ns = bpf_ktime_get_ns();
	s->value = value;
	s->latest = ns;
	s->count = calls;
	submit_sample(s);
	return 0;
}
