// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs on OpenSSL's SSL_read() and SSL_write(), SSL_read_ex() and SSL_write_ex(): what they read and write in clear is
 * given to what reads sockets. */
#include "inference/tls.bpf.h"
#include "lib/arguments.bpf.h"

/* A thread calls OpenSSL. */
static __always_inline int call_begins(struct pt_regs *ctx, u64 count_at)
{
	struct tls_thread *t;
	struct caller who;

	if (!follow(&who))
		return 0;
	t = bpf_task_storage_get(&tls_threads, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return 0;
	t->session = argument(ctx, 0);
	t->buffer = argument(ctx, 1);
	t->count_at = count_at;
	t->stack = STACK_POINTER(ctx);
	return 0;
}

/* (SSL *, void *, int) */
SEC("uprobe")
int tls_called(struct pt_regs *ctx)
{
	return call_begins(ctx, 0);
}

/* (SSL *, void *, size_t, size_t *) */
SEC("uprobe")
int tls_called_ex(struct pt_regs *ctx)
{
	return call_begins(ctx, argument(ctx, 3));
}

/* How many bytes a call has read or written; 0: none, or it failed. */
static __always_inline u32 bytes_of_call(struct pt_regs *ctx, const struct tls_thread *t)
{
	s32 result = RESULT(ctx);
	u64 bytes = 0;

	if (result <= 0)
		return 0;
	if (!t->count_at)
		return result;
	if (bpf_probe_read_user(&bytes, sizeof(bytes), (void *)t->count_at) || bytes > ~0U >> 1)
		return 0;
	return bytes;
}

/* Fills in what a call carried; false where that is nothing. */
static __always_inline int carried_by_call(struct pt_regs *ctx, const struct caller *who, struct tls_thread *t,
					   int is_read, struct carried *carried)
{
	struct tls_session *s;
	u32 bytes;

	if (!t->session)
		return 0;
	bytes = bytes_of_call(ctx, t);
	s = bytes && t->buffer ? session_of_call(who, t, is_read) : NULL;
	t->session = 0;
	if (!s)
		return 0;
	*carried = (struct carried){
		.key = s->connection.key,
		.sk = (struct sock *)s->socket,
		.scan = &t->scan,
		.from = t->buffer,
		.bytes = bytes,
		.is_decrypted = 1,
	};
	return 1;
}

SEC("uretprobe")
int tls_read(struct pt_regs *ctx)
{
	struct tls_thread *t = tls_thread_now();
	struct carried carried;
	struct caller who;
	struct followed *f = follow(&who);

	if (t && f && carried_by_call(ctx, &who, t, 1, &carried))
		received(&who, f, &carried);
	return 0;
}

SEC("uretprobe")
int tls_written(struct pt_regs *ctx)
{
	struct tls_thread *t = tls_thread_now();
	struct carried carried;
	struct caller who;
	struct followed *f = follow(&who);

	if (t && f && carried_by_call(ctx, &who, t, 0, &carried))
		sent(&who, f, &carried);
	return 0;
}

/* SSL_do_handshake() and its like have returned. */
SEC("uretprobe")
int tls_shook_hands(struct pt_regs *ctx)
{
	struct tls_thread *t = tls_thread_now();
	struct tls_session *s;
	struct caller who;

	if (!t || !t->session || !follow(&who))
		return 0;
	/* What has just been read was this session's. */
	s = session_at(&who, t->session);
	if (t->read_socket && (!s || !connection_of(&s->connection)))
		bind(&who, t->session, t->read_socket, t->read_key, 0);
	t->read_socket = 0;
	t->session = 0;
	return 0;
}

/* SSL_free(SSL *), and SSL_clear(): what has the address next is another session. */
SEC("uprobe")
int tls_ends(struct pt_regs *ctx)
{
	struct tls_session *s;
	struct connection *c;
	struct live_key key;
	struct caller who;

	if (!follow(&who))
		return 0;
	key = (struct live_key){ who.tgid, who.exec_id, FIRST_ARGUMENT(ctx) };
	s = bpf_map_lookup_elem(&tls_sessions, &key);
	if (!s)
		return 0;
	c = connection_of(&s->connection);
	if (c && !s->socket)
		close_connection(s->connection.key);
	else if (c)
		c->session = 0;
	TAKE_OUT(tls_sessions, TABLE_TLS_SESSIONS, &who, &key);
	return 0;
}
