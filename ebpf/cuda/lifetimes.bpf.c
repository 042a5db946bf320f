// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* When do threads and programs end, and which program runs under a pid now? */
#include "abi/programs.h"
#include "cuda/capture.bpf.h"
#include "cuda/generations.bpf.h"
#include "cuda/threads.bpf.h"

/* Programs that have ended: of the threads that end last at the same time, one puts its program here. Removed by the
 * agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct program_key);
	__type(value, u8);
} ended SEC(".maps");

static __always_inline void end_thread(const struct caller *who)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &who->task);

	if (t)
		take_out(&threads, TABLE_THREADS, t->tgid, t->exec_id, &who->task);
}

/* The rest of what a program has in tables takes a search, which is the agent's. */
static __always_inline void end_program(u32 tgid, u32 exec_id)
{
	struct program_key key = { tgid, exec_id };
	struct program *program = bpf_map_lookup_elem(&programs, &key);
	u8 yes = 1;

	if (!program || bpf_map_update_elem(&ended, &key, &yes, BPF_NOEXIST))
		return;
	__sync_fetch_and_add(place_of_program(captures, exec_id), -program->captures);
	__sync_fetch_and_add(reused_by(exec_id), -program->reused);
	program->ended_ns = bpf_ktime_get_ns();
}

SEC("tp_btf/sched_process_exit")
int thread_ends(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct caller who;

	if (!identify(&who))
		return 0;
	end_thread(&who);
	if (!task->signal->live.counter)
		end_program(who.tgid, who.exec_id);
	return 0;
}

/* The calling thread, the only one left, has become another program's first. */
SEC("tp_btf/sched_process_exec")
int program_begins(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct caller who;

	if (!identify(&who))
		return 0;
	end_thread(&who);
	end_program(who.tgid, program_number(process_start(task), task->self_exec_id - 1));
	return 0;
}

/* An observed process makes another, which is observed too; loaded only where children are followed. The agent takes those
 * out that have ended. A number that comes back meanwhile, as a child of another process, loses its place here. */
SEC("tp_btf/sched_process_fork")
int child_begins(u64 *ctx)
{
	struct task_struct *child = (void *)ctx[1];
	struct caller who;
	u32 number;
	u8 yes = 1;

	/* A thread is its process's. */
	if (BPF_CORE_READ(child, pid) != BPF_CORE_READ(child, tgid))
		return 0;
	number = number_of(child);
	if (!number)
		return 0;
	if (!identify(&who))
		bpf_map_delete_elem(&targets, &number);
	else if (bpf_map_update_elem(&targets, &number, &yes, BPF_ANY))
		lose(LOSS_PROGRAMS_FULL);
	return 0;
}

/* Tells which programs run under which pids now, to whoever is about to read of one in /proc. */
SEC("iter/task")
int who_runs(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct running running = {};

	if (!task || task->pid != task->tgid)
		return 0;
	running.tgid = number_of(task);
	running.start_ns = process_start(task);
	running.executions = task->self_exec_id;
	running.exec_id = program_number(running.start_ns, running.executions);
	if (running.tgid)
		bpf_seq_write(ctx->meta->seq, &running, sizeof(running));
	return 0;
}
