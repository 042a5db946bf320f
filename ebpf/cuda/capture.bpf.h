/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which streams are being captured? Work put on them becomes graph nodes and does not run now. */
#ifndef OTEL_GPU_CUDA_CAPTURE_BPF_H
#define OTEL_GPU_CUDA_CAPTURE_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "lib/shares.bpf.h"

/* How many captures go on, in the programs that share a place: while it is 0 a launch pays for no lookup. Given back when
 * a program ends. */
volatile u32 captures[PLACES] = {};
const volatile u8 looks_for_captures = 0; /* 1: they are counted by another object */

static __always_inline int may_capture(const struct caller *who)
{
	return looks_for_captures || *place_of_program(captures, who->exec_id);
}

/* A stream or an event of a program (handles of the same space, told apart by `kind`), or a capture's id. */
struct handle_key {
	u32 tgid;
	u32 exec_id;
	u64 kind;
	u64 handle;
};
enum { HANDLE_STREAM, HANDLE_EVENT, HANDLE_CAPTURE };

/* Streams and events -> the capture they last took part in; captures that go on -> their stream. Entries of a
 * capture that is over are stale and harmless: its id is no longer in the map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct handle_key);
	__type(value, u64);
} capturing SEC(".maps");

/* Kernels that captures recorded, as a kernel's row of launches would be there: the agent is told once where each
 * was launched from. The value says nothing. */
struct captured_key {
	u32 tgid;
	u32 exec_id;
	u64 function;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct captured_key);
	__type(value, u8);
} captured_kernels SEC(".maps");

/* Is this the first time that a capture records a kernel? */
RARE int first_captured(u64 function)
{
	struct captured_key key;
	struct caller who;
	u8 nothing = 0;

	if (!identify(&who))
		return 0;
	key = (struct captured_key){ who.tgid, who.exec_id, function };
	if (bpf_map_lookup_elem(&captured_kernels, &key))
		return 0;
	if (PUT_IN(captured_kernels, TABLE_CAPTURED_KERNELS, &who, &key, &nothing))
		return 1;
	if (bpf_map_lookup_elem(&captured_kernels, &key))
		return 0; /* another thread was faster */
	return lose(LOSS_NAMES_FULL);
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
	struct handle_key key = { who->tgid, who->exec_id, kind, handle };
	u64 *id = bpf_map_lookup_elem(&capturing, &key);

	if (!id)
		return 0;
	key.kind = HANDLE_CAPTURE;
	key.handle = *id;
	return bpf_map_lookup_elem(&capturing, &key) ? key.handle : 0;
}

RARE int remember_capture(u32 kind, u64 handle, u64 id)
{
	struct handle_key key;
	struct caller who;
	u64 *known;

	if (!identify(&who))
		return 0;
	key = (struct handle_key){ who.tgid, who.exec_id, kind, handle };
	known = bpf_map_lookup_elem(&capturing, &key);
	if (known)
		*known = id;
	else if (!PUT_IN(capturing, TABLE_CAPTURING, &who, &key, &id))
		return lose(LOSS_CAPTURES_FULL);
	return 1;
}

RARE int forget_capture(u32 kind, u64 handle)
{
	struct handle_key key;
	struct caller who;

	if (!identify(&who))
		return 0;
	key = (struct handle_key){ who.tgid, who.exec_id, kind, handle };
	return TAKE_OUT(capturing, TABLE_CAPTURING, &who, &key);
}

/* The capture that records a stream, 0 for none. */
static __always_inline u64 capturing_stream(const struct caller *who, u64 stream, u8 flags)
{
	if (!may_capture(who))
		return 0;
	return capture_of(who, HANDLE_STREAM, normal_stream(who, stream, flags));
}

/* One capture more, or less, goes on. */
static __always_inline void count_captures(const struct caller *who, int more)
{
	struct program *program = program_of(who);

	if (!program)
		return;
	__sync_fetch_and_add(&program->captures, more);
	__sync_fetch_and_add(place_of_program(captures, who->exec_id), more);
}

/* `id` is the time of the call: unique enough among the captures of one process. */
static __always_inline void start_capture(const struct caller *who, u64 stream, u8 flags, u64 id)
{
	u64 handle = normal_stream(who, stream, flags);

	if (remember_capture(HANDLE_STREAM, handle, id) && remember_capture(HANDLE_CAPTURE, id, handle))
		count_captures(who, 1);
}

static __always_inline void end_capture(const struct caller *who, u64 stream, u8 flags)
{
	u64 id = capture_of(who, HANDLE_STREAM, normal_stream(who, stream, flags));

	if (id && forget_capture(HANDLE_CAPTURE, id))
		count_captures(who, -1);
}

/* A capture is over: its stream is as any other, unless another one has begun on it. */
static __always_inline void forget_stream(const struct caller *who, u64 stream, u8 flags, u64 id)
{
	struct handle_key key = { who->tgid, who->exec_id, HANDLE_STREAM, normal_stream(who, stream, flags) };
	u64 *known = bpf_map_lookup_elem(&capturing, &key);

	if (known && *known == id)
		TAKE_OUT(capturing, TABLE_CAPTURING, who, &key);
}

/* What was taken for its end was none. */
static __always_inline void resume_capture(const struct caller *who, u64 id)
{
	if (remember_capture(HANDLE_CAPTURE, id, 0))
		count_captures(who, 1);
}

static __always_inline void capture_event(const struct caller *who, u64 event, u64 stream, u8 flags)
{
	u64 id = capture_of(who, HANDLE_STREAM, normal_stream(who, stream, flags));

	if (id)
		remember_capture(HANDLE_EVENT, event, id);
	else
		forget_capture(HANDLE_EVENT, event);
}

static __always_inline void join_capture(const struct caller *who, u64 stream, u64 event, u8 flags)
{
	u64 id = capture_of(who, HANDLE_EVENT, event);

	if (id)
		remember_capture(HANDLE_STREAM, normal_stream(who, stream, flags), id);
}

#endif
