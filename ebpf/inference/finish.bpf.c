// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What became of requests that are over? They are told a little after their end, since what serves them may go on. Run by
 * the agent, by one thread at a time. */
#include "inference/serving.bpf.h"

/* Requests that are told. Read by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} told_requests SEC(".maps");

/* How many of `finished` are closed: to these nothing is added any more, but by who has just looked at one; how many were so
 * a while ago, and when that was; to how many nobody adds; how many are told. */
u64 closed_count = 0;
u64 marked_count = 0;
u64 marked_ns = 0;
u64 settled_count = 0;
u64 told_count = 0;

#define AT_ONCE 8192

struct finishing {
	u64 ended_before;
};

static __always_inline u64 *finished_at(u64 number)
{
	u32 at = number & (FINISHED - 1);

	return bpf_map_lookup_elem(&finished, &at);
}

static long close_next(u32 i, struct finishing *f)
{
	u64 *id = finished_at(closed_count);
	struct request *r;

	if (closed_count == finished_count || !id || !*id)
		return 1;
	r = request_numbered(*id);
	if (r) {
		if (r->ended_ns > f->ended_before)
			return 1;
		r->flags |= REQUEST_CLOSED;
	}
	closed_count++;
	return 0;
}

static long tell_next(u32 i, struct finishing *f)
{
	u64 *id = finished_at(told_count), key;
	struct gpu_totals *nobody;
	struct request *r;
	u32 size;

	if (told_count == settled_count || !id || !*id)
		return 1;
	key = *id;
	r = request_numbered(key);
	if (r) {
		size = r->head_size;
		if (size > REQUEST_HEAD)
			size = REQUEST_HEAD;
		size += __builtin_offsetof(struct request, head);
		asm volatile("" : "+r"(size)); /* the verifier must see the bound */
		if (size > sizeof(*r))
			size = sizeof(*r);
		if (bpf_ringbuf_output(&told_requests, r, size, 0))
			return 1; /* when there is room again */
		/* What was held to the end may have been for others. */
		nobody = nobodys(r->tgid, r->exec_id, NO_OWNER_UNDECIDED);
		if (nobody)
			add_totals(nobody, &r->held, 1);
		take_out(&requests, TABLE_REQUESTS, r->tgid, r->exec_id, &key);
	}
	*id = 0;
	told_count++;
	return 0;
}

/* (a time, nanoseconds): closes those that had ended by then, and tells those that were closed so long ago. */
SEC("raw_tp")
int finish_requests(u64 *ctx)
{
	struct finishing f = { .ended_before = ctx[0] };
	u64 now = bpf_ktime_get_ns();

	bpf_loop(AT_ONCE, close_next, &f, 0);
	if (now - marked_ns >= ctx[1]) {
		settled_count = marked_count;
		marked_count = closed_count;
		marked_ns = now;
	}
	bpf_loop(AT_ONCE, tell_next, &f, 0);
	return 0;
}

/* (request): ends it where it stands, as the agent ends, or its program has. */
SEC("raw_tp")
int cut_request(u64 *ctx)
{
	end_request(request_numbered(ctx[0]), ENDING_NONE);
	return 0;
}
