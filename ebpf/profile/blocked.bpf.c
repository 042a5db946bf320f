// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of blocked threads, which go through those of a process when the agent asks: what do they wait for? Their stacks
 * are walked from outside while they do not move. */
#define WALKS_OTHERS
#define ITS_LOSSES profile_lost
#include "abi/samples.h"
#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "lib/announce.bpf.h"
#include "lib/arguments.bpf.h"
#include "profile/calls.bpf.h"
#include "profile/heads.bpf.h"
#include "profile/off_cpu_waits.bpf.h"
#include "unwind/unwind.bpf.h"

/* The one question at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct asked);
} asked SEC(".maps");

/* Where a stack is put together. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stack_sample);
} scratch SEC(".maps");

static __always_inline void tell(struct bpf_iter__task *ctx, const struct stack_sample *s)
{
	u32 frames = s->frames;

	if (frames > MAX_FRAMES)
		return;
	bpf_seq_write(ctx->meta->seq, s, SAMPLE_HEAD + frames * sizeof(struct frame));
}

static __always_inline u32 exec_id_of(struct task_struct *task)
{
	return program_number(BPF_CORE_READ(task, group_leader, start_boottime), task->self_exec_id);
}

/* How often a thread has left its CPU: as long as it does not change, a blocked thread has not moved. */
static __always_inline u64 moves_of(struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

static __always_inline int is_blocked(struct task_struct *task)
{
	return *(volatile unsigned int *)&task->__state && !*(volatile unsigned int *)&task->on_cpu &&
	       !task->exit_state;
}

/* Apart from the stack, on which the walk leaves little room. */
u64 moves_before = 0;

/* Takes the stack of a blocked thread; 0 when it has moved meanwhile. */
static __always_inline int take_stack(struct task_struct *task, struct stack_sample *s, struct unwind_process *process)
{
	struct pt_regs *user = (void *)bpf_task_pt_regs(task);

	moves_before = moves_of(task);
	unwind(task, s, process, INSTRUCTION(user), STACK_POINTER(user), FRAME_POINTER(user), 0);
	return is_blocked(task) && moves_of(task) == moves_before;
}

/* Begins the waits of threads that nobody saw leaving their CPU, and tells the others as they are by now: what goes on
 * counts from here on. */
SEC("iter.s/task")
int blocked_off_cpu(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct unwind_process *process;
	u64 now = bpf_ktime_get_ns(), since;
	u32 zero = 0, exec_id;
	struct off_cpu_wait *wait;
	struct asked *a;

	a = bpf_map_lookup_elem(&asked, &zero);
	if (!task || !a || !is_blocked(task))
		return 0;
	process = bpf_map_lookup_elem(&unwind_processes, &a->tgid);
	exec_id = exec_id_of(task);
	wait = process ? off_cpu_wait_of(task, a->tgid, exec_id) : NULL;
	if (!wait)
		return 0;
	since = wait->start_ns;
	if (!since) {
		wait->who.tgid = a->tgid;
		wait->who.pid_tgid = (u64)a->tgid << 32 | (u32)task->pid;
		wait->who.exec_id = exec_id;
		wait->is_taken = 0;
	}
	if (!wait->is_taken) {
		fill_head(&wait->sample, &wait->who, SAMPLE_OFF_CPU, 0, now, 0);
		if (!take_stack(task, &wait->sample, process))
			return 0;
		wait->is_taken = 1;
	}
	if (!since) {
		wait->start_ns = now;
	} else if (now > since && now - since >= a->min_ns && wait->start_ns == since) {
		wait->sample.time_ns = now;
		wait->sample.value = wait->sample.latest = now - since;
		wait->sample.count = 1;
		tell(ctx, &wait->sample);
		wait->start_ns = now;
	}
	/* It went on before its wait was begun: nobody will end it. */
	if (!is_blocked(task))
		wait->start_ns = 0;
	return 0;
}

/* The thread's call that waits; NULL when it is in none. */
static __always_inline struct entered *waiting_call(struct sampled_thread *t)
{
	u32 place = SAMPLED_CALLS;

#pragma unroll
	for (u32 i = 0; i < SAMPLED_CALLS; i++)
		if (t->entered[i].function && t->entered[i].waits)
			place = i;
	return place < SAMPLED_CALLS ? CALL_AT(t->entered, place) : NULL;
}

struct entered call = {};

/* Tells of a call that has not returned: whatever its thread does in it, its callers stand still. */
SEC("iter.s/task")
int blocked_wait(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct unwind_process *process;
	struct sampled_thread *t;
	struct stack_sample *s;
	u64 now, caller = 0, key = 0;
	struct caller who;
	struct entered *e;
	struct asked *a;
	u32 zero = 0;

	a = bpf_map_lookup_elem(&asked, &zero);
	s = bpf_map_lookup_elem(&scratch, &zero);
	if (!task || !a || !s)
		return 0;
	bpf_probe_read_kernel(&key, sizeof(key), &task);
	t = bpf_map_lookup_elem(&sampled_threads, &key);
	process = bpf_map_lookup_elem(&unwind_processes, &a->tgid);
	if (!t || !process || t->born_ns != task->start_boottime)
		return 0;
	e = waiting_call(t);
	if (!e)
		return 0;
	call = *e;
	who = (struct caller){ .tgid = a->tgid, .exec_id = exec_id_of(task), .pid_tgid = t->tid };
	fill_head(s, &who, SAMPLE_WAIT, call.function - 1, 0, call.function - 1);
	if (bpf_copy_from_user_task(&caller, sizeof(caller), (void *)call.address, (void *)task, 0))
		s->stop = STOP_UNREADABLE;
	else
		unwind(task, s, process, caller, call.address + 8, call.pitch_at, 1);
	if (e->function != call.function || e->start_ns != call.start_ns)
		return 0;
	now = bpf_ktime_get_ns();
	s->time_ns = now;
	s->value = now - call.start_ns;
	e->start_ns = now;
	tell(ctx, s);
	return 0;
}

static __always_inline int is_on_cpu(struct task_struct *task)
{
	return *(volatile unsigned int *)&task->on_cpu;
}

/* Tells what a thread does now, and its stack, where it does not move: it waits, or is ready to run and does not get to. */
SEC("iter.s/task")
int thread_stack(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct unwind_process *process;
	struct stack_sample *s;
	struct pt_regs *user;
	struct caller who;
	struct asked *a;
	u32 zero = 0, state;

	a = bpf_map_lookup_elem(&asked, &zero);
	s = bpf_map_lookup_elem(&scratch, &zero);
	if (!task || !a || !s || task->exit_state)
		return 0;
	process = bpf_map_lookup_elem(&unwind_processes, &a->tgid);
	who = (struct caller){ .tgid = a->tgid, .exec_id = exec_id_of(task) };
	who.pid_tgid = pidns_ino ? number_of(task) : (u32)task->pid;
	fill_head(s, &who, SAMPLE_THREAD, 0, bpf_ktime_get_ns(), 0);
	state = *(volatile unsigned int *)&task->__state ? THREAD_BLOCKED : THREAD_READY;
	if (is_on_cpu(task)) {
		state = THREAD_RUNNING;
	} else if (!process) {
		s->stop = STOP_UNKNOWN_PROCESS;
	} else {
		user = (void *)bpf_task_pt_regs(task);
		moves_before = moves_of(task);
		unwind(task, s, process, INSTRUCTION(user), STACK_POINTER(user), FRAME_POINTER(user), 0);
		if (is_on_cpu(task) || moves_of(task) != moves_before) {
			s->frames = 0;
			s->stop = STOP_NONE;
			state = THREAD_RUNNING;
		}
	}
	s->value = state;
	tell(ctx, s);
	return 0;
}
