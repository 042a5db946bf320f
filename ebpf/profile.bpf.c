// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which code launches, waits, copies, allocates, runs? Stacks, taken of as many calls as the budget allows, each with
 * what it stands for. A second program on the sites of cuda.bpf.c, loaded only when profiles are asked for. */
#define ITS_LOSSES profile_lost
#include "abi/busy.h"
#include "abi/cookies.h"
#include "abi/memory.h"
#include "abi/programs.h"
#include "abi/samples.h"
#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "cuda/busy_map.bpf.h"
#include "cuda/capture.bpf.h"
#include "cuda/copy.bpf.h"
#include "cuda/device.bpf.h"
#include "cuda/extents.bpf.h"
#include "lib/give_back.bpf.h"
#include "profile/resting.bpf.h"
#include "unwind/unwind.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile u32 stacks_per_second = 400;  /* of one thread and sample type */
const volatile u64 off_cpu_min_ns = 1000000; /* shorter stays off the CPU are not counted */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} samples SEC(".maps");

/* Waking the agent for each stack would cost more than the stack: the first one that it has not seen wakes it, and those
 * that come while it waits for more do not. What a stack names may be gone soon. */
#define WAKE_AT (2 << 20)

static __always_inline void submit(struct stack_sample *s)
{
	u64 waiting = bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA);

	/* A record counts as soon as it is reserved. */
	bpf_ringbuf_submit(s, waiting < 2 * sizeof(*s) || waiting > WAKE_AT ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

#define WINDOW_NS 250000000ULL
#define WINDOWS_PER_SECOND 4

/* Every how many calls, so that the last window's rate would have kept the budget, and a burst in this one does. */
static __always_inline void adapt(struct sampler *s, u64 now, u32 budget)
{
	u32 period = 1;

	if (budget && s->in_window > budget)
		period = s->in_window / budget;
	if (now - s->window_start_ns >= WINDOW_NS) {
		s->period = period;
		s->window_start_ns = now;
		s->in_window = 0;
	} else if (period > s->period) {
		s->period = period;
	}
}

/* Counts a call of the thread; true when its stack is to be taken. The distance to the next is random around the
 * period, lest it beats with a loop in the program. */
static __always_inline int count_down(struct sampler *s, u32 budget)
{
	s->in_window++;
	if (s->countdown > 1) {
		s->countdown--;
		return 0;
	}
	adapt(s, bpf_ktime_get_ns(), budget);
	s->countdown = s->period > 1 ? 1 + bpf_get_prandom_u32() % (2 * s->period - 1) : 1;
	return 1;
}

#define BUDGET (stacks_per_second / WINDOWS_PER_SECOND)

/* True when this call's stack is to be taken; then `value` and `calls` are what it stands for. */
static __always_inline int is_due_within(struct sampler *s, u64 *value, u64 *calls, u32 budget)
{
	if (!s)
		return 1;
	s->value += *value;
	s->calls += *calls;
	if (!count_down(s, budget))
		return 0;
	*value = s->value;
	*calls = s->calls;
	s->value = 0;
	s->calls = 0;
	return 1;
}

static __always_inline int is_due(const struct caller *who, u32 type, u64 *value, u64 *calls)
{
	return is_due_within(sampler_of(who, type), value, calls, BUDGET);
}

/* Keeps what a stack that found no room was to stand for: the thread's next one stands for it, or the total alone. */
static __always_inline void keep(struct sampler *s, u64 value, u64 calls)
{
	if (!s)
		return;
	s->value += value;
	s->calls += calls;
}

static __always_inline void fill_head(struct stack_sample *s, const struct caller *who, u32 type, u64 cookie)
{
	s->type = type;
	s->tgid = who->tgid;
	s->incarnation = who->incarnation;
	s->tid = (u32)who->pid_tgid;
	s->time_ns = bpf_ktime_get_ns();
	s->function = COOKIE_FUNCTION(cookie);
	s->stop = STOP_NONE;
	s->frames = 0;
	s->value = 0;
	s->count = 1;
	s->subject = 0;
}

/* Whether the calling program may have so much of the ring; counted where it may not. */
RARE int may_sample(u32 bytes)
{
	struct program *program;
	struct caller who;

	if (!identify(&who))
		return 0;
	meet();
	program = program_of(&who);
	if (program && may_send(&samples, &program->samples, bytes))
		return 1;
	lose_of(program, LOSS_EVENTS_FULL);
	return 0;
}

static __always_inline struct stack_sample *start_sample(const struct caller *who, u32 type, u64 cookie)
{
	struct stack_sample *s;

	if (!may_sample(sizeof(*s)))
		return 0;
	s = bpf_ringbuf_reserve(&samples, sizeof(*s), 0);
	if (!s) {
		lose(LOSS_EVENTS_FULL);
		return 0;
	}
	fill_head(s, who, type, cookie);
	return s;
}

static __always_inline struct unwind_process *unwindable(const struct caller *who)
{
	return bpf_map_lookup_elem(&unwind_processes, &who->tgid);
}

/* Takes the stack at a probe on a function's entry, or on the instruction that returns from it; 0 when there is no room
 * for it. */
static __always_inline int take_at_entry(struct pt_regs *ctx, const struct caller *who, u32 type, u64 cookie, u64 value,
					 u64 count, u64 subject)
{
	struct unwind_process *process = unwindable(who);
	struct stack_sample *s = start_sample(who, type, cookie);
	u64 caller;

	if (!s)
		return 0;
	s->value = value;
	s->count = count;
	s->subject = subject;
	s->frame[0].a = INSTRUCTION(ctx);
	s->frame[0].b = (u64)FRAME_EXACT << FRAME_KIND_SHIFT;
	s->frames = 1;
	/* The return address is on top, whatever the library's tables say. */
	if (!process)
		s->stop = STOP_UNKNOWN_PROCESS;
	else if (bpf_probe_read_user(&caller, sizeof(caller), (void *)STACK_POINTER(ctx)))
		s->stop = STOP_UNREADABLE;
	else
		unwind(s, process, caller, STACK_POINTER(ctx) + 8, FRAME_POINTER(ctx), 1);
	submit(s);
	return 1;
}

/* Takes the stack at a return probe: the function is gone, its caller is at the return address. Without room for it the
 * thread's next stack stands for its call as well. */
static __always_inline void take_at_return(struct pt_regs *ctx, const struct caller *who, u32 type, u64 cookie,
					   u64 value, u64 count, u64 subject)
{
	struct unwind_process *process = unwindable(who);
	struct stack_sample *s = start_sample(who, type, cookie);

	if (!s) {
		keep(sampler_of(who, type), value, count);
		return;
	}
	s->value = value;
	s->count = count;
	s->subject = subject;
	if (!process)
		s->stop = STOP_UNKNOWN_PROCESS;
	else
		unwind(s, process, INSTRUCTION(ctx), STACK_POINTER(ctx), FRAME_POINTER(ctx), 1);
	submit(s);
}

/* ---- launches ---- */

#define LAUNCH_CONFIG_STREAM 32 /* in struct CUlaunchConfig */

/* The kernel's handle is the argument that the cookie's `out` names, the stream the one that `stream` names or a field
 * of the structure in argument 0. */
SEC("uprobe")
int profile_launch(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), value = 1, calls = 1, stream = 0;
	u32 at = COOKIE_STREAM(cookie);
	struct caller who;

	if (!identify(&who))
		return 0;
	if (at != ARGUMENT_NONE)
		stream = argument(ctx, at);
	else
		bpf_probe_read_user(&stream, sizeof(stream), (void *)(argument(ctx, 0) + LAUNCH_CONFIG_STREAM));
	if (capturing_stream(&who, stream, COOKIE_FLAGS(cookie)))
		return 0;
	if (is_due(&who, SAMPLE_LAUNCH, &value, &calls) &&
	    !take_at_entry(ctx, &who, SAMPLE_LAUNCH, cookie, value, calls, argument(ctx, COOKIE_OUT(cookie))))
		keep(sampler_of(&who, SAMPLE_LAUNCH), value, calls);
	return 0;
}

/* ---- submissions: whose work kept a device busy ----
 * Where these programs run the submission is counted, and its call has not returned: its work cannot be known to be
 * done yet, so the batch it is in is the one that holds the latest number. */

/* Of a batch whose every stack is known, it is known whose work it was. So some batches are taken whole, and the
 * stacks of all others as those of launches are; each may have half the budget. */
#define BATCH_BUDGET (BUDGET / 2)
#define BATCH_STACKS 1024 /* the most that are taken of one batch, at a stretch */

struct batch_sampler {
	u64 first; /* the present batch's busy.batch_first */
	u64 window_start_ns;
	u32 in_window; /* submissions */
	u32 period;    /* every how many batches one is taken whole, on average */
	u32 countdown;
	u32 stacks; /* of the present batch; ~0 when it is not to be taken whole */
};

/* Written here, removed by the agent with their program. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, struct busy_key);
	__type(value, struct batch_sampler);
} batch_samplers SEC(".maps");

static __always_inline int is_batch_due(struct batch_sampler *s, u64 now)
{
	u64 windows = (now - s->window_start_ns) / WINDOW_NS;
	u32 budget = BATCH_BUDGET ?: 1, period;

	period = s->in_window / (windows ?: 1) / budget ?: 1;
	if (windows) {
		s->period = period;
		s->window_start_ns = now;
		s->in_window = 0;
		if (s->countdown > 2 * period)
			s->countdown = 2 * period;
	} else if (period > s->period) {
		s->period = period;
	}
	if (s->countdown > 1) {
		s->countdown--;
		return 0;
	}
	s->countdown = s->period > 1 ? 1 + bpf_get_prandom_u32() % (2 * s->period - 1) : 1;
	return 1;
}

/* True when this submission is part of a batch that is taken whole. Threads that are here at once may get the budget
 * wrong, and nothing else: user space counts the stacks. */
static __always_inline int is_of_whole_batch(const struct busy_key *key, const struct busy *b)
{
	struct batch_sampler *s = bpf_map_lookup_elem(&batch_samplers, key);

	if (!s) {
		struct batch_sampler fresh = { .first = ~0ULL, .window_start_ns = b->batch_opened_ns, .period = 1 };
		PUT_IN(batch_samplers, TABLE_BATCH_SAMPLERS, key, key, &fresh);
		s = bpf_map_lookup_elem(&batch_samplers, key);
		if (!s)
			return 0;
	}
	s->in_window++;
	if (s->first != b->batch_first) {
		s->first = b->batch_first;
		s->stacks = is_batch_due(s, b->batch_opened_ns) ? 0 : ~0U;
	}
	if (s->stacks >= BATCH_STACKS)
		return 0;
	s->stacks++;
	return 1;
}

/* Notes what a submission does. One that comes while another thread is here is left out: of its batch it is then not
 * known what was done. The same of one that finds no part. */
static __always_inline void note_part(struct busy *b, u64 subject)
{
	if (__sync_val_compare_and_swap(&b->noting, 0, 1))
		return;
#pragma unroll
	for (u32 i = 0; i < BATCH_PARTS; i++) {
		struct batch_part *part = &b->kind.parts[i];

		if (!part->calls)
			part->subject = subject;
		if (part->subject == subject) {
			part->calls++;
			b->noted++;
			break;
		}
	}
	*(volatile u64 *)&b->noting = 0;
}

static __always_inline int profile_submission(struct pt_regs *ctx, u64 subject)
{
	u64 cookie = attach_cookie(ctx), number, value = 1, calls = 1;
	struct sampler *sampler;
	struct busy_key key;
	struct caller who;
	struct busy *b;
	u32 device;

	if (!identify(&who))
		return 0;
	device = device_of(&who);
	busy_key_of(&key, &who, device);
	b = bpf_map_lookup_elem(&busy, &key);
	if (!b)
		return 0;
	note_part(b, PART_OF(subject, COOKIE_FUNCTION(cookie)));
	number = *(volatile u64 *)&b->submissions;
	sampler = submission_sampler_of(&who, device);
	if (!is_of_whole_batch(&key, b) && !is_due_within(sampler, &value, &calls, BATCH_BUDGET))
		return 0;
	if (number > b->sampled)
		b->sampled = number;
	if (!take_at_entry(ctx, &who, SAMPLE_SUBMISSION, cookie, WORK_AT(device, number), calls, subject))
		keep(submission_sampler_of(&who, device), calls, calls);
	return 0;
}

SEC("uprobe")
int profile_submitted_first(struct pt_regs *ctx)
{
	return profile_submission(ctx, argument(ctx, 0));
}

SEC("uprobe")
int profile_submitted_second(struct pt_regs *ctx)
{
	return profile_submission(ctx, argument(ctx, 1));
}

SEC("uprobe")
int profile_submitted_other(struct pt_regs *ctx)
{
	return profile_submission(ctx, 0);
}

/* ---- calls that return: waits, copies, allocations ---- */

/* Where the call will return to, for who looks while it goes on. */
static __always_inline void note_place(struct pt_regs *ctx, struct entered *e)
{
	e->address = STACK_POINTER(ctx);
	e->pitch_at = FRAME_POINTER(ctx);
	e->waits = 1;
}

SEC("uprobe")
int profile_wait(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered *e;

	if (!identify(&who))
		return 0;
	e = enter(&who, cookie);
	if (e)
		note_place(ctx, e);
	return 0;
}

SEC("uretprobe")
int profile_wait_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), calls = 1, ns;
	struct caller who;
	struct entered e;

	if (!identify(&who) || !leave(&who, cookie, &e))
		return 0;
	ns = bpf_ktime_get_ns() - e.start_ns;
	if (is_due(&who, SAMPLE_WAIT, &ns, &calls))
		take_at_return(ctx, &who, SAMPLE_WAIT, cookie, ns, calls, COOKIE_FUNCTION(cookie));
	return 0;
}

/* Copies: bytes, and for those that block the time as well. */
#define PROFILE_COPY(shape)                                                                                            \
	static __always_inline int take_copy_##shape(struct pt_regs *ctx)                                              \
	{                                                                                                              \
		u64 cookie = attach_cookie(ctx), calls = 1;                                                            \
		struct copy copy = {};                                                                                 \
		struct caller who;                                                                                     \
		if (!identify(&who) || is_inner(&who, cookie) || !copy_##shape##_of(ctx, cookie, &copy))               \
			return 0;                                                                                      \
		if (COOKIE_STREAM(cookie) != ARGUMENT_NONE &&                                                          \
		    capturing_stream(&who, argument(ctx, COOKIE_STREAM(cookie)), COOKIE_FLAGS(cookie)))                \
			return 0;                                                                                      \
		if (is_due(&who, SAMPLE_COPY, &copy.bytes, &calls) &&                                                  \
		    !take_at_entry(ctx, &who, SAMPLE_COPY, cookie, copy.bytes, calls, COOKIE_FUNCTION(cookie)))        \
			keep(sampler_of(&who, SAMPLE_COPY), copy.bytes, calls);                                        \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC("uprobe") int profile_copy_##shape##_async(struct pt_regs *ctx)                                            \
	{                                                                                                              \
		return take_copy_##shape(ctx);                                                                         \
	}                                                                                                              \
	SEC("uprobe") int profile_copy_##shape(struct pt_regs *ctx)                                                    \
	{                                                                                                              \
		u64 cookie = attach_cookie(ctx);                                                                       \
		struct copy copy = {};                                                                                 \
		struct entered *e;                                                                                     \
		struct caller who;                                                                                     \
		if (!identify(&who) || !copy_##shape##_of(ctx, cookie, &copy))                                         \
			return 0;                                                                                      \
		e = enter(&who, cookie);                                                                               \
		if (!e)                                                                                                \
			return 0;                                                                                      \
		e->size = copy.bytes;                                                                                  \
		note_place(ctx, e);                                                                                    \
		return 0;                                                                                              \
	}
PROFILE_COPY(linear)
PROFILE_COPY(2d)
PROFILE_COPY(3d)
PROFILE_COPY(parms)

/* An asynchronous copy that may hand its work to the function with FLAG_INNER and the same number: whoever comes first
 * takes the stack, and that is the one that the program called. */
static __always_inline void note_outer(struct pt_regs *ctx)
{
	struct caller who;

	if (identify(&who))
		enter(&who, attach_cookie(ctx));
}

/* First what needs little: its room on the stack is the walk's then. */
SEC("uprobe")
int profile_copy_outer(struct pt_regs *ctx)
{
	note_outer(ctx);
	return take_copy_linear(ctx);
}

SEC("uretprobe")
int profile_copy_outer_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered e;

	if (identify(&who))
		leave(&who, cookie, &e);
	return 0;
}

SEC("uretprobe")
int profile_copy_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), calls = 1, more = 1, ns;
	struct caller who;
	struct entered e;

	if (!identify(&who) || !leave(&who, cookie, &e))
		return 0;
	ns = bpf_ktime_get_ns() - e.start_ns;
	if (is_due(&who, SAMPLE_WAIT, &ns, &calls))
		take_at_return(ctx, &who, SAMPLE_WAIT, cookie, ns, calls, COOKIE_FUNCTION(cookie));
	if (!RESULT(ctx) && is_due(&who, SAMPLE_COPY, &e.size, &more))
		take_at_return(ctx, &who, SAMPLE_COPY, cookie, e.size, more, COOKIE_FUNCTION(cookie));
	return 0;
}

SEC("uprobe")
int profile_alloc(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered *e;

	if (!identify(&who))
		return 0;
	e = enter(&who, cookie);
	if (!e)
		return 0;
	e->size = argument(ctx, COOKIE_SIZE(cookie));
	e->address = argument(ctx, COOKIE_OUT(cookie));
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED)
		e->pitch_at = argument(ctx, COOKIE_SIZE2(cookie));
	return 0;
}

SEC("uprobe")
int profile_alloc_extent(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered *e;

	if (!identify(&who))
		return 0;
	e = enter(&who, cookie);
	if (!e)
		return 0;
	e->address = argument(ctx, 0);
	e->size = rows_of(ctx, &e->pitch_at);
	return 0;
}

SEC("uretprobe")
int profile_alloc_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), pitch = 0;
	struct caller who;
	struct entered e;

	if (!identify(&who) || !leave(&who, cookie, &e) || RESULT(ctx))
		return 0;
	if (!(COOKIE_FLAGS(cookie) & FLAG_DIRECT) && !read_user(&e.address, sizeof(e.address), e.address))
		return 0;
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED) {
		read_user(&pitch, sizeof(pitch), e.pitch_at);
		e.size *= pitch;
	}
	take_at_return(ctx, &who, SAMPLE_ALLOC, cookie, e.size, 1, e.address);
	return 0;
}

SEC("uprobe")
int profile_free(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), address = argument(ctx, COOKIE_OUT(cookie));
	struct caller who;
	struct entered *e;

	if (!address || !identify(&who))
		return 0;
	e = enter(&who, cookie);
	if (e)
		e->address = address;
	return 0;
}

/* What has no stack of its own, such as a free, which is charged to the stack that allocated. */
#define SAMPLE_HEAD __builtin_offsetof(struct stack_sample, frame)

static __always_inline void submit_head(const struct caller *who, u32 type, u64 cookie, u64 time_ns, u64 subject)
{
	struct stack_sample *s;

	if (!may_sample(SAMPLE_HEAD))
		return;
	s = bpf_ringbuf_reserve(&samples, SAMPLE_HEAD, 0);
	if (!s) {
		lose(LOSS_EVENTS_FULL);
		return;
	}
	s->type = type;
	s->tgid = who->tgid;
	s->incarnation = who->incarnation;
	s->tid = (u32)who->pid_tgid;
	s->time_ns = time_ns;
	s->function = COOKIE_FUNCTION(cookie);
	s->stop = STOP_NONE;
	s->frames = 0;
	s->value = 0;
	s->count = 1;
	s->subject = subject;
	submit(s);
}

SEC("uretprobe")
int profile_free_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered e;

	/* As of when the call began: whatever was given the address since is another allocation. */
	if (identify(&who) && leave(&who, cookie, &e) && !RESULT(ctx))
		submit_head(&who, SAMPLE_FREE, cookie, e.start_ns, e.address);
	return 0;
}

/* ---- PyTorch ----
 * Its functions may throw. A return probe would put an address on the stack that no exception gets past, and the
 * program would end: these probes sit on the functions' own return instructions. */

SEC("uprobe")
int profile_backward(struct pt_regs *ctx)
{
	struct caller who;

	if (identify(&who) && unwindable(&who))
		take_at_entry(ctx, &who, SAMPLE_BACKWARD, attach_cookie(ctx), 0, 1, 0);
	return 0;
}

SEC("uprobe")
int profile_backward_done(struct pt_regs *ctx)
{
	struct caller who;

	if (identify(&who) && unwindable(&who))
		submit_head(&who, SAMPLE_BACKWARD_DONE, attach_cookie(ctx), bpf_ktime_get_ns(), 0);
	return 0;
}

struct tensor {
	u64 size;
	u64 group;
};

/* The tensors that live. Those beyond the map are in no profile of memory in use, and counted as lost. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct live_key);
	__type(value, struct tensor);
} tensors SEC(".maps");

/* By number. A group ends with its last tensor; the agent removes those of ended processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, u64);
	__type(value, struct tensor_group);
} tensor_groups SEC(".maps");

u64 groups_made = 0;

static __always_inline void end_tensor(const struct live_key *key)
{
	struct tensor *tensor = bpf_map_lookup_elem(&tensors, key);
	struct tensor_group *group;
	u64 size, number;

	if (!tensor)
		return;
	size = tensor->size;
	number = tensor->group;
	if (!TAKE_OUT(tensors, TABLE_TENSORS, key, key))
		return;
	group = bpf_map_lookup_elem(&tensor_groups, &number);
	if (group && __sync_fetch_and_sub(&group->bytes, size) == size && group->closed)
		TAKE_OUT(tensor_groups, TABLE_TENSOR_GROUPS, key, &number);
}

/* Adds a tensor to its thread's group; returns the group's number, 0 when there is no room. */
static __always_inline u64 join_group(const struct caller *who, const struct live_key *key, u64 size)
{
	struct sampler *s = sampler_of(who, SAMPLE_TENSOR);
	struct tensor_group *group, fresh = { .tgid = who->tgid, .incarnation = who->incarnation };
	struct tensor tensor = { .size = size };

	if (!s)
		return 0;
	if (!s->group) {
		s->group = __sync_fetch_and_add(&groups_made, 1) + 1;
		tensor.group = s->group;
		PUT_IN(tensor_groups, TABLE_TENSOR_GROUPS, who, &tensor.group, &fresh);
	}
	tensor.group = s->group;
	group = bpf_map_lookup_elem(&tensor_groups, &tensor.group);
	/* The address comes again only when a free went unseen. */
	end_tensor(key);
	if (!group || !PUT_IN(tensors, TABLE_TENSORS, who, key, &tensor)) {
		lose(LOSS_LIVE_FULL);
		return tensor.group;
	}
	__sync_fetch_and_add(&group->bytes, size);
	return tensor.group;
}

static __always_inline void close_group(const struct caller *who, u64 number)
{
	struct tensor_group *group = bpf_map_lookup_elem(&tensor_groups, &number);
	struct sampler *s = sampler_of(who, SAMPLE_TENSOR);

	if (s)
		s->group = 0;
	if (!group)
		return;
	group->closed = 1;
	if (!group->bytes)
		TAKE_OUT(tensor_groups, TABLE_TENSOR_GROUPS, who, &number);
}

SEC("uprobe")
int profile_tensor(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered *e;

	if (!identify(&who) || !unwindable(&who))
		return 0;
	e = enter(&who, cookie);
	if (!e)
		return 0;
	e->size = argument(ctx, COOKIE_SIZE(cookie));
	e->address = argument(ctx, COOKIE_OUT(cookie));
	return 0;
}

SEC("uprobe")
int profile_tensor_made(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), calls = 1, group;
	struct live_key key = {};
	struct caller who;
	struct entered e;

	if (!identify(&who) || !leave(&who, cookie, &e))
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	if (!read_user(&key.address, sizeof(key.address), e.address) || !key.address)
		return 0;
	group = join_group(&who, &key, e.size);
	if (is_due(&who, SAMPLE_TENSOR, &e.size, &calls)) {
		if (take_at_entry(ctx, &who, SAMPLE_TENSOR, cookie, e.size, calls, group))
			close_group(&who, group);
		else
			keep(sampler_of(&who, SAMPLE_TENSOR), e.size, calls);
	}
	return 0;
}

SEC("uprobe")
int profile_tensor_free(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	key.address = argument(ctx, COOKIE_OUT(cookie));
	if (key.address)
		end_tensor(&key);
	return 0;
}

/* ---- on CPU ---- */

struct bpf_perf_event_data {
	struct pt_regs regs;
	u64 sample_period;
	u64 addr;
};

#define USER_SPACE_END 0x0000800000000000ULL

SEC("perf_event")
int profile_cpu(struct bpf_perf_event_data *ctx)
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
	fill_head(s, &who, SAMPLE_CPU, 0);
	s->value = 1;
	s->subject = kernel;
	unwind(s, process, pc, sp, fp, 0);
	submit(s);
	return 0;
}

/* ---- off CPU ---- */

/* Most stays are short and come to nothing: more walks than stacks are wanted, for what is long to have its own. */
#define OFF_CPU_BUDGET (5 * BUDGET)

#define PF_EXITING 4 /* include/linux/sched.h */

/* The stack is taken as the thread goes, when nobody knows yet for how long: afterwards it cannot be read. The
 * budget is one of walks, so which stays have a stack does not depend on how long they were. */
SEC("tp_btf/sched_switch")
int profile_switch(u64 *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct unwind_process *process;
	struct sampler *sampler;
	struct pt_regs *user;
	struct caller who;
	struct stay *stay;

	/* Preempted, or woken in the same moment: ready to run. Or about to end. */
	if (ctx[0] || !task->__state || task->flags & PF_EXITING)
		return 0;
	if (!identify(&who))
		return 0;
	process = unwindable(&who);
	if (!process)
		return 0;
	stay = stay_of(task, who.tgid, who.incarnation);
	if (!stay) {
		lose_of(program_of(&who), LOSS_CALLS_FULL);
		return 0;
	}
	stay->who = who;
	stay->is_taken = 0;
	sampler = sampler_of(&who, SAMPLE_OFF_CPU);
	if (!sampler || count_down(sampler, OFF_CPU_BUDGET)) {
		user = (void *)bpf_task_pt_regs((void *)task);
		fill_head(&stay->sample, &who, SAMPLE_OFF_CPU, 0);
		unwind(&stay->sample, process, INSTRUCTION(user), STACK_POINTER(user), FRAME_POINTER(user), 0);
		stay->is_taken = 1;
	}
	stay->start_ns = bpf_ktime_get_ns();
	return 0;
}

/* Somebody ended the wait: from here on the thread is ready to run. */
SEC("tp_btf/sched_wakeup")
int profile_wakeup(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct stay *stay = bpf_task_storage_get(&stays, task, 0, 0);
	struct sampled_thread *t;
	struct program *program;
	struct stack_sample *s = NULL;
	struct sampler *sampler;
	u64 ns, value, calls = 1;

	if (!stay || !stay->start_ns)
		return 0;
	ns = bpf_ktime_get_ns() - stay->start_ns;
	stay->start_ns = 0;
	if (ns < off_cpu_min_ns)
		return 0;
	t = sampled_thread_of(&stay->who);
	sampler = t ? sampler_at(t, SAMPLE_OFF_CPU) : NULL;
	value = ns;
	if (sampler) {
		ready(sampler);
		value += sampler->value;
		calls += sampler->calls;
		sampler->value = stay->is_taken ? 0 : value;
		sampler->calls = stay->is_taken ? 0 : calls;
	}
	if (!stay->is_taken)
		return 0;
	program = program_of(&stay->who);
	if (!program || may_send(&samples, &program->samples, sizeof(*s)))
		s = bpf_ringbuf_reserve(&samples, sizeof(*s), 0);
	if (!s) {
		lose_of(program, LOSS_EVENTS_FULL);
		keep(sampler, value, calls);
		return 0;
	}
	bpf_probe_read_kernel(s, sizeof(*s), &stay->sample);
	s->time_ns = bpf_ktime_get_ns();
	s->value = value;
	s->count = calls;
	submit(s);
	return 0;
}

/* ---- ends ---- */

static __always_inline int end_sampling(struct task_struct *task)
{
	struct caller who;

	if (!identify(&who))
		return 0;
	end_sampled_thread(&who);
	end_stay(task);
	return 0;
}

/* Both before the programs of lives.bpf.h, which say that a program has ended. */
SEC("tp_btf/sched_process_exit")
int profile_thread_ends(u64 *ctx)
{
	return end_sampling((void *)ctx[0]);
}

SEC("tp_btf/sched_process_exec")
int profile_program_begins(u64 *ctx)
{
	return end_sampling((void *)ctx[0]);
}
