// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* How does work go from thread to thread? Through _queue.SimpleQueue, as executors hand it on, and by new threads; and when
 * does a thread no longer work for a request? */
#include "inference/callbacks.bpf.h"
#include "inference/calls.bpf.h"
#include "inference/contexts.bpf.h"
#include "inference/conversations.bpf.h"
#include "inference/kernel_sockets.h"

/* Whom a queued item is for. */
struct queued {
	u64 request;
	struct holder holder;
};

/* Items of queues, by address, from put to get. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct live_key);
	__type(value, struct queued);
} queue_items SEC(".maps");

/* The thread of grpc.server puts each call into an executor, and nothing else. */
static __always_inline void own_call(struct owning *o, const struct caller *who)
{
	struct request_thread *t = known_thread(who);

	if (!t || !t->waits_in_grpc)
		return;
	o->holder.number = 0;
	o->request = call_is_put(who->tgid, who->exec_id);
}

/* put(self, args, ...): the item is the first of the arguments. */
SEC("uprobe")
int item_put(struct pt_regs *ctx)
{
	struct queued item, *known;
	struct live_key key;
	struct caller who;
	struct owning o;
	struct followed *f = follow(&who);

	if (!f)
		return 0;
	key = (struct live_key){ who.tgid, who.exec_id, read_word(SECOND_ARGUMENT(ctx)) };
	o = owning_of(&who, context_now(f));
	own(&o, f);
	if (f->grpc)
		own_call(&o, &who);
	known = bpf_map_lookup_elem(&queue_items, &key);
	if (!o.request) {
		if (known)
			TAKE_OUT(queue_items, TABLE_QUEUE_ITEMS, &who, &key);
		return 0;
	}
	item = (struct queued){ o.request, o.holder };
	if (known)
		*known = item;
	else if (!PUT_IN(queue_items, TABLE_QUEUE_ITEMS, &who, &key, &item))
		lose(LOSS_REQUESTS_FULL);
	return 0;
}

/* A thread asks for an item: it is done with the one before. */
SEC("uprobe")
int item_wanted(struct pt_regs *ctx)
{
	struct request_thread *t;
	struct caller who;

	if (!follow(&who))
		return 0;
	t = known_thread(&who);
	if (t)
		t->request = 0;
	return 0;
}

SEC("uretprobe")
int item_taken(struct pt_regs *ctx)
{
	struct request_thread *t;
	struct live_key key;
	struct queued *item;
	struct caller who;
	struct followed *f = follow(&who);

	if (!f || !RETURNED(ctx))
		return 0;
	key = (struct live_key){ who.tgid, who.exec_id, RETURNED(ctx) };
	item = bpf_map_lookup_elem(&queue_items, &key);
	if (!item)
		return 0;
	t = meet_request_thread(&who);
	if (t) {
		t->context = context_now(f);
		t->request = item->request;
		t->holder = item->holder;
		t->why = CLAIM_ITEM;
	}
	TAKE_OUT(queue_items, TABLE_QUEUE_ITEMS, &who, &key);
	return 0;
}

/* (parent, child): a thread works for whom its maker worked for. */
SEC("tp_btf/sched_process_fork")
int thread_begins(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	struct request_thread *t;
	struct caller who;
	struct owning o;
	struct followed *f;
	u64 task = (u64)child;

	if (parent->tgid != child->tgid)
		return 0;
	f = follow(&who);
	if (!f)
		return 0;
	o = owning_of(&who, context_now(f));
	own(&o, f);
	if (!o.request)
		return 0;
	t = bpf_map_lookup_elem(&request_threads, &task);
	if (!t && !PUT_IN(request_threads, TABLE_REQUEST_THREADS, &who, &task, &no_request_thread)) {
		lose(LOSS_REQUESTS_FULL);
		return 0;
	}
	t = bpf_map_lookup_elem(&request_threads, &task);
	if (!t)
		return 0;
	*t = (struct request_thread){
		.born_ns = child->start_boottime,
		.tgid = who.tgid,
		.exec_id = who.exec_id,
		.request = o.request,
		.holder = o.holder,
		.why = CLAIM_THREAD,
	};
	return 0;
}

SEC("tp_btf/sched_process_exit")
int request_thread_ends(u64 *ctx)
{
	struct request_thread *t;
	struct caller who;

	if (!follow(&who))
		return 0;
	bpf_map_delete_elem(&waiting_loops, &who.pid_tgid);
	t = bpf_map_lookup_elem(&request_threads, &who.task);
	if (t && t->callback.stack)
		leave_callbacks(callbacks_of(&who), t, ~0ULL, ENDING_LOST);
	if (t)
		take_out(&request_threads, TABLE_REQUEST_THREADS, t->tgid, t->exec_id, &who.task);
	return 0;
}

/* A thread waits for descriptors: several of them make it an event loop; one is a wait with a time limit. */
static __always_inline void waits_for_descriptors(struct pt_regs *ctx, s32 most)
{
	u64 from;
	struct request_thread *t;
	struct followed *f;
	struct caller who;

	if (most < 2)
		return;
	f = follow(&who);
	if (!f)
		return;
	if (!f->context_offset)
		f->has_loops = 1;
	t = meet_request_thread(&who);
	if (!t)
		return;
	if (!t->is_loop) {
		/* What it was taken for as it read before it first waited. */
		t->is_batch = 0;
		t->is_loop = 1;
	}
	if (f->grpc) {
		from = RETURNS_TO(ctx);
		t->waits_in_grpc = from >= f->grpc && from < f->grpc_end;
	}
	t->accepted.number = 0;
	t->awaits_enter = 0;
	if (t->why == CLAIM_READ)
		t->request = 0;
}

/* epoll_wait(epoll, events, most, ...) and its like. */
SEC("uprobe")
int loop_waits(struct pt_regs *ctx)
{
	waits_for_descriptors(ctx, THIRD_ARGUMENT(ctx));
	return 0;
}

/* Whether a CPython waits that has not come to run the thread's function: from 3.13 on a thread that it starts waits for its
 * maker to have noted it, on a semaphore of its own stack, before it has a state. */
static __always_inline int is_beginning(const struct followed *f, u64 from)
{
	return from >= f->python && from < f->python_end && !thread_state_now(f);
}

/* sem_wait(semaphore), pthread_cond_wait(condition, ...) and their like: a thread that waits for anything but the
 * interpreter's lock may wait for other work. */
SEC("uprobe")
int thread_waits(struct pt_regs *ctx)
{
	u64 address = FIRST_ARGUMENT(ctx);
	struct caller who;
	struct followed *f = follow(&who);
	struct request_thread *t;
	struct request *r;

	if (!f || (address >= f->runtime && address < f->runtime_end))
		return 0;
	t = known_thread(&who);
	if (!t || !t->request)
		return 0;
	r = request_numbered(t->request);
	if (!r || r->ended_ns || (t->why == CLAIM_THREAD && !is_beginning(f, RETURNS_TO(ctx))))
		t->request = 0;
	return 0;
}

/* As socket_key() has it; 0 for what is no connection. */
static __always_inline u64 key_of_descriptor(u32 descriptor)
{
	struct task_struct___files *task = (void *)bpf_get_current_task();
	struct file___private **files = BPF_CORE_READ(task, files, fdt, fd);
	struct file___private *file = NULL;
	struct socket *socket;
	struct sock *sk;
	u16 family;

	if (bpf_probe_read_kernel(&file, sizeof(file), &files[descriptor]))
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	return family == FAMILY_INET || family == FAMILY_INET6 || family == FAMILY_UNIX ? socket_key(sk) : 0;
}

/* accept() and accept4() have returned: the next copy of the context that the thread is in is the connection's. */
SEC("uretprobe")
int connection_accepted(struct pt_regs *ctx)
{
	s32 descriptor = RETURNED(ctx);
	struct request_thread *t;
	struct connection *c;
	u64 key;
	struct caller who;
	struct followed *f = follow(&who);

	if (!f || descriptor < 0)
		return 0;
	t = meet_request_thread(&who);
	if (!t)
		return 0;
	/* Before its first step: the thread may launch for the first request before it reads the second. */
	note_several(&who, f, t, NULL);
	t->request = 0;
	t->awaits_enter = 0;
	t->accepted.number = 0;
	if (!f->context_offset)
		return 0;
	t->accepted_in = context_now(f);
	if (!is_entered(t->accepted_in))
		return 0;
	key = key_of_descriptor(descriptor);
	c = key ? bpf_map_lookup_elem(&connections, &key) : NULL;
	if (key && !c)
		c = meet_connection(&who, key);
	if (c)
		t->accepted = (struct connection_id){ key, c->number };
	return 0;
}
