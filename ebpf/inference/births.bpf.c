// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs on CPython: whose is a context that is made, and what becomes of the work that one holds when it ends? */
#include "inference/contexts.bpf.h"

static __always_inline int is_ambiguous(const struct connection_id *id)
{
	struct connection *c = connection_of(id);

	return c && c->flags & CONNECTION_AMBIGUOUS;
}

/* A copy of a context that works for one request works for that. */
static __always_inline void inherit_request(struct python_context *child, const struct python_context *parent,
					    const struct owning *o)
{
	struct request *r = request_numbered(parent->request);

	/* It may be the next request's task, made by the end of the last one. */
	if (is_ambiguous(&parent->connection))
		return;
	child->kind = CONTEXT_FROZEN;
	child->request = parent->request;
	child->connection = parent->connection;
	child->flags = r && r->ended_ns ? parent->flags : 0;
	if (child->flags & CONTEXT_ROOT || parent->flags & CONTEXT_ROOT)
		return;
	child->holder = parent->holder;
	if (!living(o, &child->holder)) {
		child->holder.context = o->context;
		child->holder.number = parent->number;
	}
}

/* A copy of a context that works for a connection: for the request that is served, or for the connection as well. */
static __always_inline void inherit_connection(struct python_context *child, const struct python_context *parent,
					       const struct owning *o, const struct request_thread *t)
{
	struct connection *c = connection_of(&parent->connection);
	struct request *r;

	if (c && c->flags & CONNECTION_AMBIGUOUS)
		return;
	if (!c || !c->request) {
		child->kind = CONTEXT_CONNECTION;
		child->connection = parent->connection;
		return;
	}
	child->kind = CONTEXT_FROZEN;
	child->connection = parent->connection;
	child->request = c->request;
	r = request_numbered(c->request);
	/* Made by the callback that read the request: the request's own task. */
	if (t && t->context == o->context && t->request == c->request && r && !r->first_byte_ns)
		child->flags = CONTEXT_ROOT;
}

/* A copy of what says nothing, or of no context: for the request that the thread works for. */
static __always_inline void inherit_thread(struct python_context *child, struct owning *o, const struct followed *f,
					   const struct request_thread *t)
{
	own(o, f);
	if (!o->request)
		return;
	child->kind = CONTEXT_FROZEN;
	child->request = o->request;
	if (t && t->request == o->request && t->why == CLAIM_READ) {
		child->connection = t->connection;
		child->flags = CONTEXT_ROOT;
	} else if (t) {
		child->holder = t->holder;
	}
}

/* A context is made. */
static __always_inline struct python_context *begin_context(const struct caller *who, u64 address)
{
	u64 number = __sync_fetch_and_add(&context_count, 1) + 1;
	struct python_context *c = meet_context(who, address);

	if (!c)
		return NULL;
	/* The end of the one that was here before may have gone unseen. */
	__builtin_memset(c, 0, sizeof(*c));
	c->number = number;
	c->kind = CONTEXT_NONE;
	return c;
}

/* PyContext_CopyCurrent() has returned; the thread is still in the context that was copied. */
SEC("uretprobe")
int context_copied(struct pt_regs *ctx)
{
	u64 address = RETURNED(ctx);
	struct python_context *child, *parent;
	struct request_thread *t;
	struct caller who;
	struct owning o;
	struct followed *f = follow(&who);

	if (!f || !address)
		return 0;
	o = owning_of(&who, context_now(f));
	child = begin_context(&who, address);
	if (!child)
		return 0;
	child->parent = o.context;
	t = known_thread(&who);
	parent = telling_context(f, &o, t);
	if (!parent && t && t->is_loop && is_entered(o.context))
		f->learns_anew = 1;
	if (t && t->accepted.number && t->accepted_in == o.context) {
		child->kind = CONTEXT_CONNECTION;
		child->connection = t->accepted;
		t->accepted.number = 0;
	} else if (parent && parent->kind == CONTEXT_FROZEN) {
		inherit_request(child, parent, &o);
	} else if (parent && parent->kind == CONTEXT_CONNECTION) {
		inherit_connection(child, parent, &o, t);
	} else if (!parent || parent->kind != CONTEXT_NONE) {
		inherit_thread(child, &o, f, t);
	}
	if (child->kind == CONTEXT_FROZEN && !(child->flags & CONTEXT_ROOT) && !child->holder.number) {
		child->holder.context = address;
		child->holder.number = child->number;
	}
	return 0;
}

/* Context.copy() has returned: from 3.15 on asyncio makes a connection's context so, of its server's, which it has since it
 * listens. Whom other copies are for is not asked. */
SEC("uretprobe")
int context_copied_by_method(struct pt_regs *ctx)
{
	struct request_thread *t;
	struct python_context *c;
	struct caller who;
	struct followed *f = follow(&who);
	u64 address = RETURNED(ctx);

	if (!f || !address)
		return 0;
	t = known_thread(&who);
	if (!t || !t->accepted.number || t->accepted_in != context_now(f))
		return 0;
	c = begin_context(&who, address);
	if (!c)
		return 0;
	c->kind = CONTEXT_CONNECTION;
	c->connection = t->accepted;
	t->accepted.number = 0;
	return 0;
}

/* Work that is decided upon is the request's from now on. */
static __always_inline void commit_works(struct request *r, u32 holder)
{
	for (u32 i = 0; i < REQUEST_WORKS; i++)
		if (r->work[i].holder == holder)
			r->work[i].holder = 0;
	if (r->batch_holder == holder)
		r->batch_holder = 0;
}

/* (PyContext *): what a context holds is the request's when it ends before that, or soon after: a task that has been waited
 * for may be freed by the garbage collector only. */
SEC("uprobe")
int context_ends(struct pt_regs *ctx)
{
	struct python_context *c;
	struct live_key key;
	struct request *r;
	struct caller who;
	u64 held = 0;

	if (!follow(&who))
		return 0;
	key = (struct live_key){ who.tgid, who.exec_id, FIRST_ARGUMENT(ctx) };
	c = bpf_map_lookup_elem(&python_contexts, &key);
	if (!c)
		return 0;
#pragma unroll
	for (u32 i = 0; i < sizeof(c->held) / sizeof(u64); i++)
		held |= ((u64 *)&c->held)[i];
	r = held || c->has_stacks ? request_numbered(c->request) : NULL;
	if (r && !(r->flags & REQUEST_CLOSED)) {
		add_totals(&r->held, &c->held, -1);
		add_totals(&r->owned, &c->held, 1);
		commit_works(r, c->number);
		if (c->has_stacks)
			bpf_map_update_elem(&decided_holders, &c->number, &c->request, BPF_ANY);
	}
	TAKE_OUT(python_contexts, TABLE_PYTHON_CONTEXTS, &who, &key);
	return 0;
}

/* PyContext_Enter(PyContext *): uvloop reads outside of contexts, and enters then the server's. */
SEC("uprobe")
int context_entered(struct pt_regs *ctx)
{
	struct python_context *c;
	struct request_thread *t;
	struct caller who;
	struct followed *f = follow(&who);

	if (!f)
		return 0;
	t = known_thread(&who);
	if (!t || !t->awaits_enter)
		return 0;
	t->awaits_enter = 0;
	if (context_now(f) != t->context)
		return 0;
	c = meet_context(&who, FIRST_ARGUMENT(ctx));
	if (!c)
		return 0;
	if (!c->kind || c->kind == CONTEXT_NONE)
		c->kind = CONTEXT_SERVER;
	if (c->kind == CONTEXT_SERVER)
		f->has_learned = 1;
	return 0;
}
