/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which streams are being captured? Work put on them becomes graph nodes and does not run now. */
#ifndef OTEL_GPU_CAPTURE_BPF_H
#define OTEL_GPU_CAPTURE_BPF_H

#include "common.bpf.h"

/* How many captures go on, in all processes: while it is 0 a launch pays for no lookup. The agent subtracts
 * what ended processes left. */
volatile u32 captures = 0;

/* A stream or an event of a process (handles of the same space, told apart by `kind`), or a capture's id. */
struct handle_key {
	u32 tgid;
	u32 kind;
	u64 handle;
};
enum { HANDLE_STREAM, HANDLE_EVENT, HANDLE_CAPTURE };

/* Streams and events -> the capture they last took part in; captures that go on -> their stream. Entries of a
 * capture that is over are stale and harmless: its id is no longer in the map. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct handle_key);
	__type(value, u64);
} capturing SEC(".maps");

/* Kernels that captures recorded, as a kernel's row of launches would be there: the agent is told once where each
 * was launched from. The value says nothing. */
struct captured_key {
	u32 tgid;
	u32 incarnation;
	u64 function;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct captured_key);
	__type(value, u8);
} captured_kernels SEC(".maps");

/* Is this the first time that a capture records a kernel? */
static __always_inline int first_captured(const struct caller *who, u64 function)
{
	struct captured_key key = { who->tgid, who->incarnation, function };
	u8 nothing = 0;

	return !bpf_map_update_elem(&captured_kernels, &key, &nothing, BPF_NOEXIST);
}

/* Stream handles 0, 1 and 2 are the legacy default, itself, and the thread's own. */
#define LEGACY_STREAM 1
static __always_inline u64 normal_stream(const struct caller *who, u64 stream, u8 flags)
{
	if (stream == 2 || (!stream && (flags & FLAG_PER_THREAD)))
		return 2 | who->pid_tgid << 32;
	return stream ? stream : LEGACY_STREAM;
}

static __always_inline u64 capture_of(const struct caller *who, u32 kind, u64 handle)
{
	struct handle_key key = { who->tgid, kind, handle };
	u64 *id = bpf_map_lookup_elem(&capturing, &key);

	if (!id)
		return 0;
	key.kind = HANDLE_CAPTURE;
	key.handle = *id;
	return bpf_map_lookup_elem(&capturing, &key) ? key.handle : 0;
}

static __always_inline void remember_capture(const struct caller *who, u32 kind, u64 handle, u64 id)
{
	struct handle_key key = { who->tgid, kind, handle };

	if (bpf_map_update_elem(&capturing, &key, &id, BPF_ANY))
		lose(LOSS_CAPTURES_FULL);
}

/* The capture that records a stream, 0 for none. */
static __always_inline u64 capturing_stream(const struct caller *who, u64 stream, u8 flags)
{
	if (!captures)
		return 0;
	return capture_of(who, HANDLE_STREAM, normal_stream(who, stream, flags));
}

/* `id` is the time of the call: unique enough among the captures of one process. */
static __always_inline void start_capture(const struct caller *who, u64 stream, u8 flags, u64 id)
{
	u64 handle = normal_stream(who, stream, flags);

	remember_capture(who, HANDLE_CAPTURE, id, handle);
	remember_capture(who, HANDLE_STREAM, handle, id);
	__sync_fetch_and_add(&captures, 1);
}

static __always_inline void end_capture(const struct caller *who, u64 stream, u8 flags)
{
	u64 id = capture_of(who, HANDLE_STREAM, normal_stream(who, stream, flags));
	struct handle_key key = { who->tgid, HANDLE_CAPTURE, id };

	if (id && !bpf_map_delete_elem(&capturing, &key))
		__sync_fetch_and_add(&captures, -1);
}

/* What was taken for its end was none. */
static __always_inline void resume_capture(const struct caller *who, u64 id)
{
	remember_capture(who, HANDLE_CAPTURE, id, 0);
	__sync_fetch_and_add(&captures, 1);
}

static __always_inline void capture_event(const struct caller *who, u64 event, u64 stream, u8 flags)
{
	struct handle_key key = { who->tgid, HANDLE_EVENT, event };
	u64 id = capture_of(who, HANDLE_STREAM, normal_stream(who, stream, flags));

	if (id)
		remember_capture(who, HANDLE_EVENT, event, id);
	else
		bpf_map_delete_elem(&capturing, &key);
}

static __always_inline void join_capture(const struct caller *who, u64 stream, u64 event, u8 flags)
{
	u64 id = capture_of(who, HANDLE_EVENT, event);

	if (id)
		remember_capture(who, HANDLE_STREAM, normal_stream(who, stream, flags), id);
}

#endif
