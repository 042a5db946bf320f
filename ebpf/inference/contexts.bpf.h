/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For whom does a contextvars.Context work? Every task and callback of asyncio runs in one of its own, made by
 * PyContext_CopyCurrent: whose it is, is decided there. */
#ifndef OTEL_GPU_INFERENCE_CONTEXTS_BPF_H
#define OTEL_GPU_INFERENCE_CONTEXTS_BPF_H

#include "inference/serving.bpf.h"

static const struct python_context no_python_context = {};

static __always_inline struct python_context *meet_context(const struct caller *who, u64 address)
{
	struct live_key key = { who->tgid, who->exec_id, address };
	struct python_context *c = bpf_map_lookup_elem(&python_contexts, &key);

	if (c)
		return c;
	if (!PUT_IN(python_contexts, TABLE_PYTHON_CONTEXTS, who, &key, &no_python_context)) {
		lose(LOSS_REQUESTS_FULL);
		return NULL;
	}
	c = bpf_map_lookup_elem(&python_contexts, &key);
	if (c)
		c->number = __sync_fetch_and_add(&context_count, 1) + 1;
	return c;
}

/* An event loop has read a new request in this context: it serves the connection, if it serves no other. */
static __always_inline void follow_connection(const struct caller *who, u64 context, const struct connection_id *id)
{
	struct python_context *c = meet_context(who, context);

	if (!c || c->kind >= CONTEXT_SHARED)
		return;
	if ((c->kind == CONTEXT_CONNECTION || c->kind == CONTEXT_FROZEN) && c->connection.number &&
	    !is_connection(&c->connection, id)) {
		c->kind = CONTEXT_SHARED;
		return;
	}
	c->kind = CONTEXT_CONNECTION;
	c->connection = *id;
	c->request = 0;
	c->flags = 0;
	c->holder.number = 0;
}

/* A context answers on a connection. */
static __always_inline void answer_from(const struct caller *who, u64 context, const struct connection_id *id)
{
	struct python_context *c = python_context_at(who->tgid, who->exec_id, context), *above;
	struct request_thread *t;

	if (!c) {
		/* libuv writes outside of contexts, for anybody. */
		t = known_thread(who);
		if (t && t->is_loop && t->why == CLAIM_READ)
			t->request = 0;
		return;
	}
	if (c->kind == CONTEXT_FROZEN && is_connection(&c->connection, id))
		c->flags |= CONTEXT_ROOT;
	if (c->kind == CONTEXT_CONNECTION && !is_connection(&c->connection, id))
		c->kind = CONTEXT_SHARED;
	if (c->kind != CONTEXT_NONE)
		return;
	/* Made by the server's context for one connection, as aiohttp's tasks on uvloop are. */
	for (int i = 0; i < 4; i++) {
		above = python_context_at(who->tgid, who->exec_id, c->parent);
		if (!above || (above->kind != CONTEXT_NONE && above->kind != CONTEXT_SERVER))
			return;
		if (above->kind == CONTEXT_SERVER) {
			c->kind = CONTEXT_CONNECTION;
			c->connection = *id;
			return;
		}
		c = above;
	}
}

#endif
