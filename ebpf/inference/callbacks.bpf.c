// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs on the functions of ROS 2 that run callbacks: rclcpp::Executor's, where a callback begins and ends, and those by
 * which they take messages. No return probes: callbacks throw, and no exception gets past one. */
#include "inference/callbacks.bpf.h"
#include "lib/arguments.bpf.h"

#define CALLBACK_KIND(cookie) ((u8)(cookie))
#define CALLBACK_EXITS_SEEN (1 << 8)		  /* the function is left by `ret` alone, or by an exception */
#define MESSAGE_AT(cookie) ((u8)((cookie) >> 16)) /* which argument says where to tell of the message; 0: none */

/* struct rclcpp::AnyExecutable: behind the pointer to its virtual functions shared pointers, of which one is set. */
#define EXECUTABLE_FIRST 8

static __always_inline u32 kind_of_executable(u64 executable, u64 *entity)
{
	u64 words[2 * (CALLBACK_KINDS - 1)] = {};

	if (bpf_probe_read_user(words, sizeof(words), (void *)executable + EXECUTABLE_FIRST))
		return CALLBACK_ANY;
#pragma unroll
	for (u32 i = 0; i < CALLBACK_KINDS - 1; i++)
		if (words[2 * i]) {
			*entity = words[2 * i];
			return i + 1;
		}
	return CALLBACK_ANY;
}

static __noinline int begin_callback(const struct caller *who, struct callback_stack *s, struct callback *begun)
{
	struct request_thread *t = who ? meet_request_thread(who) : NULL;
	struct callback *c;
	struct request *r;

	if (!t || !s || !begun)
		return 0;
	/* What lay here, or below, was left without having been seen. */
	leave_callbacks(s, t, begun->frame.stack, ENDING_LOST);
	c = innermost(s);
	if (!begun->is_outer && c && c->is_outer && !c->has_inner && c->entity == begun->entity) {
		c->has_inner = 1;
		return 0;
	}
	if (begun->only_tells || s->beyond.stack)
		return 0;
	if (s->depth >= CALLBACKS_DEEP) {
		s->beyond = begun->frame;
		t->callback = s->beyond;
		lose(LOSS_REQUESTS_FULL);
		return 0;
	}
	r = begin_request(who, 0);
	if (r) {
		r->flags = REQUEST_CALLBACK;
		r->status = begun->kind;
		begun->frame.request = r->id;
	}
	s->callbacks[s->depth & (CALLBACKS_DEEP - 1)] = *begun;
	s->depth++;
	t->callback = begun->frame;
	return 0;
}

/* Executor::execute_any_executable(this, AnyExecutable &), and execute_subscription(std::shared_ptr<SubscriptionBase>) and its
 * like, which are given where their shared pointer lies. */
SEC("uprobe")
int callback_begins(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct callback begun = {};
	struct callback_stack *s;
	struct caller who;

	if (!follow(&who))
		return 0;
	begun.kind = CALLBACK_KIND(cookie);
	begun.frame.stack = STACK_POINTER(ctx);
	begun.frame.returns_to = RETURNS_TO(ctx);
	if (begun.kind == CALLBACK_ANY) {
		begun.kind = kind_of_executable(argument(ctx, 1), &begun.entity);
		if (begun.kind == CALLBACK_ANY)
			return 0;
		begun.is_outer = 1;
	} else {
		begun.entity = read_word(argument(ctx, 0));
		begun.only_tells = !(cookie & CALLBACK_EXITS_SEEN);
	}
	s = meet_callbacks(&who);
	if (s)
		begin_callback(&who, s, &begun);
	return 0;
}

/* At a return instruction of such a function. */
SEC("uprobe")
int callback_ends(struct pt_regs *ctx)
{
	struct callback_stack *s;
	struct caller who;

	if (!follow(&who))
		return 0;
	s = callbacks_of(&who);
	if (s && (s->depth || s->beyond.stack))
		leave_callbacks(s, known_thread(&who), STACK_POINTER(ctx), ENDING_COMPLETE);
	return 0;
}

/* __cxa_begin_catch(): whatever lies below who catches was left by the exception. */
SEC("uprobe")
int exception_caught(struct pt_regs *ctx)
{
	struct callback_stack *s;
	struct caller who;

	if (!follow(&who))
		return 0;
	s = callbacks_of(&who);
	if (s && (s->depth || s->beyond.stack))
		leave_callbacks(s, known_thread(&who), STACK_POINTER(ctx), ENDING_THROWN);
	return 0;
}

/* The callback that the thread is in, where it waits for its first message; NULL for any other. */
static __always_inline struct callback *awaiting(struct pt_regs *ctx, struct callback_stack *s)
{
	struct callback *c = innermost(s);

	return c && !c->has_taken && STACK_POINTER(ctx) < c->frame.stack ? c : NULL;
}

/* struct rmw_subscription_t, rmw_service_t and rmw_client_t begin alike: whose they are, data, name. */
#define ENTITY_NAME 16

static __always_inline void note_entity(struct request *r, u64 entity)
{
	struct callback_told *told = (void *)r->response;
	long size = bpf_probe_read_user_str(r->head, CALLBACK_NAME, (void *)read_word(entity + ENTITY_NAME));

	r->head_size = size > 1 ? size - 1 : 0;
	told->implementation = read_word(entity);
}

static __always_inline void note_message(struct request *r, u64 message)
{
	struct callback_told *told = (void *)r->response;

	if (message && !bpf_probe_read_user(told->message, sizeof(told->message), (void *)message))
		r->response_size = sizeof(*told);
}

/* The coroutine that the thread runs is given a callback of rclpy's. */
static __noinline int begin_in_python(const struct caller *who, const struct followed *f,
				      const struct taken_message *taken)
{
	u64 frame = f && who && taken ? nearest_coroutine(f) : 0;
	struct python_callback begun = {}, *known;
	struct live_key key = {};
	struct request *r;

	if (!frame)
		return 0;
	known = callback_of_frame(f, who->tgid, frame);
	if (known) {
		if (!known->triggers)
			return 0; /* a function of rcl's that has called another one */
		end_request(request_numbered(known->request), ENDING_LOST);
	}
	r = begin_request(who, 0);
	if (r) {
		r->flags = REQUEST_CALLBACK;
		r->status = taken->kind;
		begun.request = r->id;
		if (taken->entity) {
			note_entity(r, taken->entity);
			note_message(r, taken->message);
		}
	}
	begun.code = code_of(f, frame);
	key = (struct live_key){ who->tgid, who->exec_id, frame };
	bpf_map_update_elem(&python_callbacks, &key, &begun, BPF_ANY);
	return 0;
}

/* rmw_take_with_info(subscription, message, taken, info, ...), rmw_take_request(service, header, request, taken) and their
 * like: a callback's message is taken, by the callback of rclcpp or before that of rclpy. */
SEC("uprobe")
int message_wanted(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), entity = argument(ctx, 0), stack = STACK_POINTER(ctx);
	u64 message = MESSAGE_AT(cookie) ? argument(ctx, MESSAGE_AT(cookie)) : 0;
	struct callback_stack *s;
	struct callback *c;
	struct caller who;
	struct followed *f = follow(&who);
	struct request *r;

	if (!f)
		return 0;
	s = f->frame_previous ? meet_callbacks(&who) : callbacks_of(&who);
	if (!s)
		return 0;
	c = awaiting(ctx, s);
	if (!c) {
		s->taking =
			(struct taken_message){ f->frame_previous ? stack : 0, entity, message, CALLBACK_KIND(cookie) };
		return 0;
	}
	if (c->kind != CALLBACK_KIND(cookie))
		return 0;
	r = request_numbered(c->frame.request);
	if (!r)
		return 0;
	c->taking = stack;
	c->message = message;
	note_entity(r, entity);
	return 0;
}

/* At a return instruction of rcl_take() and its like, which say by 0 that there was a message. */
SEC("uprobe")
int message_taken(struct pt_regs *ctx)
{
	struct callback_stack *s;
	struct callback *c;
	struct caller who;
	struct followed *f = follow(&who);
	struct request *r;

	s = f ? callbacks_of(&who) : NULL;
	if (!s)
		return 0;
	if (s->taking.stack && STACK_POINTER(ctx) > s->taking.stack) {
		s->taking.stack = 0;
		if (!RESULT(ctx))
			begin_in_python(&who, f, &s->taking);
		return 0;
	}
	c = awaiting(ctx, s);
	if (!c || !c->taking || STACK_POINTER(ctx) <= c->taking)
		return 0;
	c->taking = 0;
	if (RESULT(ctx)) {
		c->took_nothing = 1;
		return 0;
	}
	c->has_taken = 1;
	r = request_numbered(c->frame.request);
	if (r)
		note_message(r, c->message);
	return 0;
}

/* At a return instruction of rcl_timer_call(): rclpy's next callback is a timer's. */
SEC("uprobe")
int timer_called(struct pt_regs *ctx)
{
	struct taken_message taken = { .kind = CALLBACK_TIMER };
	struct caller who;
	struct followed *f = follow(&who);

	if (f && f->frame_previous && !RESULT(ctx))
		begin_in_python(&who, f, &taken);
	return 0;
}

/* rcl_trigger_guard_condition(): a coroutine of rclpy's does that itself when it has what its callback gets, and when that has
 * returned. */
SEC("uprobe")
int guard_triggered(struct pt_regs *ctx)
{
	struct python_callback *c;
	struct live_key key;
	struct caller who;
	struct followed *f = follow(&who);
	u64 frame;

	if (!f || !f->frame_previous)
		return 0;
	frame = nearest_coroutine(f);
	c = frame ? callback_of_frame(f, who.tgid, frame) : NULL;
	if (!c || ++c->triggers < 2)
		return 0;
	end_request(request_numbered(c->request), ENDING_COMPLETE);
	key = (struct live_key){ who.tgid, who.exec_id, frame };
	bpf_map_delete_elem(&python_callbacks, &key);
	return 0;
}
