// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs on what CPython reads from descriptors and writes to them, _Py_read() and _Py_write(): which request was handed on
 * through a pipe? The kernel does not tell of pipes, and whoever watches all system calls makes everybody pay. What others
 * than these functions read or write there shows in how much is on the way: nothing is known then. */
#include "inference/channels.bpf.h"
#include "lib/arguments.bpf.h"

struct pipe_buffer {
	unsigned int len;
} CO_RE;

struct pipe_inode_info {
	unsigned int head;
	unsigned int tail;
	unsigned int ring_size;
	struct pipe_buffer *bufs;
} CO_RE;

struct inode___mode {
	unsigned short i_mode;
	unsigned long i_ino;
} CO_RE;

struct file___inode {
	struct inode___mode *f_inode;
	void *private_data;
} CO_RE;

struct fdtable___inode {
	unsigned int max_fds;
	struct file___inode **fd;
} CO_RE;

struct files_struct___inode {
	struct fdtable___inode *fdt;
} CO_RE;

struct task_struct___inodes {
	struct files_struct___inode *files;
} CO_RE;

#define TYPE_OF_FILE 0170000
#define TYPE_PIPE 0010000
#define MOST_BUFFERS 16 /* of a pipe that are counted: as many as it has, unless it was made larger */
#define STDIN 0
#define STDOUT 1
#define STDERR 2

/* A call of the functions. */
struct pipe_call {
	struct pipe_inode_info *pipe; /* NULL: the thread is in none */
	u64 number;		      /* of its inode */
	u64 stack;		      /* the stack pointer at its entry */
	u64 request;		      /* for which is written, */
	u64 noted;		      /* bytes that are noted as written already */
	u32 descriptor;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pipe_call);
} pipe_calls SEC(".maps");

/* The pipe that a descriptor stands for. */
static __always_inline struct pipe_inode_info *pipe_of(u32 descriptor, u64 *number)
{
	struct task_struct___inodes *task = (void *)bpf_get_current_task();
	struct fdtable___inode *table = BPF_CORE_READ(task, files, fdt);
	struct file___inode **files = BPF_CORE_READ(table, fd), *file = NULL;

	if (descriptor >= BPF_CORE_READ(table, max_fds) ||
	    bpf_probe_read_kernel(&file, sizeof(file), &files[descriptor]) || !file)
		return NULL;
	if ((BPF_CORE_READ(file, f_inode, i_mode) & TYPE_OF_FILE) != TYPE_PIPE)
		return NULL;
	*number = BPF_CORE_READ(file, f_inode, i_ino);
	return BPF_CORE_READ(file, private_data);
}

/* Bytes that can be read from it; MANY where that takes too long. */
static __always_inline u64 queued_in(struct pipe_inode_info *pipe)
{
	u32 tail = BPF_CORE_READ(pipe, tail), count = BPF_CORE_READ(pipe, head) - tail;
	u32 mask = BPF_CORE_READ(pipe, ring_size) - 1;
	u64 buffers = (u64)BPF_CORE_READ(pipe, bufs), bytes = 0;

	if (count > MOST_BUFFERS)
		return MANY;
	for (u32 i = 0; i < MOST_BUFFERS; i++) {
		struct pipe_buffer *buffer;

		if (i >= count)
			break;
		buffer = (void *)(buffers + ((tail + i) & mask) * (u64)bpf_core_type_size(struct pipe_buffer));
		bytes += BPF_CORE_READ(buffer, len);
	}
	return bytes;
}

static __always_inline struct pipe_call *begin_call(struct pt_regs *ctx, struct pipe_inode_info *pipe, u64 number)
{
	struct pipe_call *call =
		bpf_task_storage_get(&pipe_calls, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!call)
		return NULL;
	call->pipe = pipe;
	call->number = number;
	call->stack = STACK_POINTER(ctx);
	call->descriptor = FIRST_ARGUMENT(ctx);
	call->request = call->noted = 0;
	return call;
}

/* The call that returns, which is over then; a pipe of NULL where it was of none. A signal's handler may have called the
 * functions within. */
static __always_inline struct pipe_call end_call(struct pt_regs *ctx)
{
	struct pipe_call *call = bpf_task_storage_get(&pipe_calls, bpf_get_current_task_btf(), NULL, 0), found = {};

	if (!call || !call->pipe)
		return found;
	if (call->stack + sizeof(u64) == STACK_POINTER(ctx))
		found = *call;
	call->pipe = NULL;
	return found;
}

/* A thread asks for more: it is done with what it read before. An event loop asks for whoever comes next. */
static __always_inline void ask_for_more(const struct caller *who, u64 key)
{
	struct request_thread *t = known_thread(who);
	struct connection *c;

	if (!t || t->is_loop || t->why != CLAIM_CHANNEL || t->connection.key != key)
		return;
	c = connection_of(&t->connection);
	if (c)
		answered_on_channel(c);
}

/* (int, void *, size_t) */
SEC("uprobe")
int pipe_read(struct pt_regs *ctx)
{
	struct pipe_inode_info *pipe;
	struct caller who;
	u64 number;

	if (!follow(&who))
		return 0;
	pipe = pipe_of(FIRST_ARGUMENT(ctx), &number);
	if (!pipe)
		return 0;
	begin_call(ctx, pipe, number);
	ask_for_more(&who, pipe_key(number, (u64)pipe));
	return 0;
}

SEC("uretprobe")
int pipe_was_read(struct pt_regs *ctx)
{
	struct pipe_call call = end_call(ctx);
	s64 bytes = RETURNED(ctx);
	struct reading reading = {};
	struct stream_key stream_key;
	struct connection *c;
	struct caller who;
	struct followed *f;
	struct stream *s;
	u64 key, on_way;

	if (!call.pipe || bytes <= 0)
		return 0;
	f = follow(&who);
	if (!f)
		return 0;
	key = pipe_key(call.number, (u64)call.pipe);
	c = bpf_map_lookup_elem(&connections, &key);
	stream_key = pipe_stream(call.number, (u64)call.pipe);
	s = bpf_map_lookup_elem(&streams, &stream_key);
	/* Who reads is to be seen always. */
	if (!s)
		s = meet_stream(&who, &stream_key);
	if (!s || !lock_stream(s)) {
		if (c)
			c->request = 0;
		return 0;
	}
	reading.stream = s;
	on_way = queued_in(call.pipe);
	/* What somebody is about to write is counted already, or will not be. */
	if (on_way != MANY)
		on_way += s->in_flight + (s->writing && !s->is_known);
	if (count_read(s, bytes, on_way, &reading))
		look_up_pieces(&reading);
	take_reading(&who, f, known_thread(&who), key, c, s, &reading, 0);
	if (call.descriptor == STDIN && !c) {
		c = bpf_map_lookup_elem(&connections, &key);
		if (c)
			c->is_stdin = 1;
	}
	return 0;
}

/* Notes what a thread is about to write: who reads it may go on with it before the call has returned. Only where all that is on
 * the way is known, and nobody else writes: of two the kernel says nothing of who came first. */
static __always_inline void note_writing(struct stream *s, struct pipe_call *call, u64 task, u64 bytes)
{
	u64 on_way = queued_in(call->pipe), from = s->written;

	if (s->writing && s->writing != task) {
		s->is_missed = 1;
		return;
	}
	if (s->writing || s->is_missed || on_way != s->written - s->read)
		lose_stream(s);
	s->writing = task;
	s->in_flight = 0;
	if (!s->is_known)
		return;
	s->written = from + bytes;
	s->in_flight = call->noted = bytes;
	if (call->request)
		remember_piece(s, from, s->written, call->request);
}

SEC("uprobe")
int pipe_written(struct pt_regs *ctx)
{
	struct pipe_inode_info *pipe;
	struct request_thread *t;
	struct pipe_call *call;
	struct stream_key key;
	struct caller who;
	struct followed *f = follow(&who);
	struct stream *s;
	u64 number;

	if (!f)
		return 0;
	pipe = pipe_of(FIRST_ARGUMENT(ctx), &number);
	call = pipe ? begin_call(ctx, pipe, number) : NULL;
	if (!call)
		return 0;
	t = known_thread(&who);
	/* A thread that feeds a queue was begun by the first who put something in; an event loop writes later what could not be
	 * written at once, whoever it runs for then. */
	if (t && t->why != CLAIM_THREAD && !t->is_loop)
		call->request = request_of_sender(&who, f, t);
	key = pipe_stream(number, (u64)pipe);
	s = bpf_map_lookup_elem(&streams, &key);
	if (!s && call->request)
		s = meet_stream(&who, &key);
	if (s && lock_stream(s)) {
		s->sender = who.tgid;
		note_writing(s, call, who.task, THIRD_ARGUMENT(ctx));
		unlock_stream(s);
	}
	return 0;
}

/* What is written by who works for a message of a pipe is its answer; but for what it says on its standard error, and on its
 * standard output where it was not asked on its standard input. */
static __always_inline void answer_by_pipe(const struct caller *who, const struct followed *f, u32 descriptor)
{
	struct request_thread *t = known_thread(who);
	struct python_context *context = python_context_at(who->tgid, who->exec_id, context_now(f));
	struct connection *c = NULL;

	if (descriptor == STDERR)
		return;
	if (context && context->kind == CONTEXT_CONNECTION)
		c = connection_of(&context->connection);
	else if (t && t->why == CLAIM_CHANNEL)
		c = connection_of(&t->connection);
	if (!c || !(c->flags & CONNECTION_CHANNEL) || (descriptor == STDOUT && !c->is_stdin))
		return;
	answered_on_channel(c);
}

SEC("uretprobe")
int pipe_was_written(struct pt_regs *ctx)
{
	struct pipe_call call = end_call(ctx);
	s64 bytes = RETURNED(ctx);
	struct stream_key key;
	struct caller who;
	struct followed *f;
	struct stream *s;

	if (!call.pipe)
		return 0;
	f = follow(&who);
	if (!f)
		return 0;
	key = pipe_stream(call.number, (u64)call.pipe);
	s = bpf_map_lookup_elem(&streams, &key);
	if (s && lock_stream(s)) {
		if (s->writing == who.task) {
			s->writing = s->in_flight = 0;
			if (call.noted && (u64)bytes != call.noted)
				lose_stream(s);
			else if (!call.noted && bytes > 0)
				note_sent(s, bytes, queued_in(call.pipe), call.request, who.task);
		}
		unlock_stream(s);
	}
	if (bytes > 0)
		answer_by_pipe(&who, f, call.descriptor);
	return 0;
}
