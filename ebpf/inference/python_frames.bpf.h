/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which callback of rclpy does a thread of a CPython run? rclpy runs each in a coroutine of its own: whose frame is among
 * those of the thread, works for it, wherever it is left and entered again. */
#ifndef OTEL_GPU_INFERENCE_PYTHON_FRAMES_BPF_H
#define OTEL_GPU_INFERENCE_PYTHON_FRAMES_BPF_H

#include "inference/python.bpf.h"
#include "lib/loops.bpf.h"

#define FRAMES_DEEP 96
#define FRAMES_NEAR 8	     /* so far above is the coroutine that calls rclpy's own functions */
#define FRAME_OF_GENERATOR 1 /* enum _frameowner: the same from 3.11 to 3.15 */

struct python_callback {
	u64 request;  /* 0: there was no room for it */
	u64 code;     /* of the frame: another one may have its address later */
	u64 triggers; /* how often its coroutine triggered the executor's guard condition */
};

/* Callbacks that go on, by their coroutines' frames. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct live_key);
	__type(value, struct python_callback);
} python_callbacks SEC(".maps");

static __always_inline u64 frame_now(const struct followed *f)
{
	u64 state = thread_state_now(f);

	if (!state)
		return 0;
	if (f->state_frame)
		return read_word(state + f->state_frame);
	state = read_word(state + f->state_cframe);
	return state ? read_word(state + f->cframe_frame) : 0;
}

static __always_inline int is_of_generator(const struct followed *f, u64 frame)
{
	u8 owner = 0;

	if (!f->frame_owner)
		return read_word(frame + f->frame_generator) != 0;
	bpf_probe_read_user(&owner, sizeof(owner), (void *)frame + f->frame_owner);
	return owner == FRAME_OF_GENERATOR;
}

static __always_inline u64 code_of(const struct followed *f, u64 frame)
{
	return read_word(frame + f->frame_code) & ~7ULL;
}

static __always_inline struct python_callback *callback_of_frame(const struct followed *f, u32 tgid, u64 frame)
{
	struct live_key key = { tgid, f->exec_id, frame };
	struct python_callback *c = bpf_map_lookup_elem(&python_callbacks, &key);

	return c && c->code == code_of(f, frame) ? c : NULL;
}

/* The coroutine or generator that the thread runs innermost, among the nearest frames; 0: none. */
static __always_inline u64 nearest_coroutine(const struct followed *f)
{
	u64 frame = frame_now(f);

	for (u32 i = 0; i < FRAMES_NEAR && frame; i++) {
		if (is_of_generator(f, frame))
			return frame;
		frame = read_word(frame + f->frame_previous);
	}
	return 0;
}

#define NO_CALLBACK ~0ULL

struct python_frames {
	const struct followed *of;
	u64 next;
	u64 request; /* of the first callback among them */
	u32 tgid;
};

ROUND(look_at_frame)(u32 i, struct python_frames *frames)
{
	struct python_callback *c;

	if (!frames->next)
		return 1;
	if (is_of_generator(frames->of, frames->next)) {
		c = callback_of_frame(frames->of, frames->tgid, frames->next);
		if (c) {
			frames->request = c->request;
			return 1;
		}
	}
	frames->next = read_word(frames->next + frames->of->frame_previous);
	return 0;
}

/* The request of the innermost callback that the calling thread of a process is in; 0: there was no room for it, NO_CALLBACK:
 * it is in none. */
RARE u64 request_of_frames(u32 tgid)
{
	struct followed *f = bpf_map_lookup_elem(&followed, &tgid);
	struct python_frames frames = { .of = f, .request = NO_CALLBACK, .tgid = tgid };

	if (!f)
		return NO_CALLBACK;
	frames.next = frame_now(f);
	REPEAT(FRAMES_DEEP, look_at_frame, &frames);
	return frames.request;
}

#endif
