// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What becomes of the streams of connections that are closed? Run by the agent, by one thread at a time. */
#include "inference/http2.bpf.h"

static u64 http2_swept = 0; /* up to which of http2_closed */
static u64 http2_kept = 0;  /* how many could not be told */

static long end_stream(struct bpf_map *map, const struct exchange_key *key, struct exchange *e, void *unused)
{
	u64 connection = key->connection;
	struct http2_connection *h = bpf_map_lookup_elem(&http2_connections, &connection);
	struct request *r;

	if (h && !h->closed_ns)
		return 0;
	r = request_numbered(e->request);
	if (r)
		r->flags |= REQUEST_GONE;
	end_exchange(h, connection, key->stream, h && h->open ? ENDING_CLOSED : ENDING_LOST);
	return 0;
}

static long drop_closed(struct bpf_map *map, const u64 *key, struct http2_connection *h, void *unused)
{
	struct {
		u64 words[__builtin_offsetof(struct frame_piece, payload) / sizeof(u64)];
	} gone = {};
	struct frame_piece *p = (void *)&gone;
	u64 number = *key;

	if (!h->closed_ns)
		return 0;
	p->tgid = h->tgid;
	p->exec_id = h->exec_id;
	p->connection = number;
	p->type = FRAME_GONE;
	if (bpf_ringbuf_output(&frames, &gone, sizeof(gone), 0))
		http2_kept++;
	else
		take_out(&http2_connections, TABLE_HTTP2_CONNECTIONS, h->tgid, h->exec_id, &number);
	return 0;
}

SEC("raw_tp")
int end_streams(u64 *ctx)
{
	u64 closed = http2_closed;

	if (closed == http2_swept && !http2_kept)
		return 0;
	http2_swept = closed;
	http2_kept = 0;
	bpf_for_each_map_elem(&exchanges, end_stream, NULL, 0);
	bpf_for_each_map_elem(&http2_connections, drop_closed, NULL, 0);
	return 0;
}
