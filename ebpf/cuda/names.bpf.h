/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is a kernel called? Told to the agent as the driver is told. */
#ifndef OTEL_GPU_CUDA_NAMES_BPF_H
#define OTEL_GPU_CUDA_NAMES_BPF_H

#include "abi/events.h"
#include "abi/programs.h"
#include "cuda/generations.bpf.h"
#include "lib/events.bpf.h"
#include "lib/loops.bpf.h"

struct marking {
	const char *name;
	u64 mark;
	u32 size;
};

static __always_inline int mark_word(u32 at, struct marking *m, u32 room)
{
	asm volatile("" : "+r"(at)); /* the verifier must see the bound */
	if (at >= m->size || at > room - 8)
		return 1;
	m->mark = (m->mark ^ *(const u64 *)(m->name + at)) * 0x100000001b3ULL;
	m->mark ^= m->mark >> 32;
	return 0;
}

/* One for each size of a record, for the verifier must see that as well. */
ROUND(mark_word_of_short)(u32 i, struct marking *m)
{
	return mark_word(i * 8, m, NAME_SHORT);
}
ROUND(mark_word_of_long)(u32 i, struct marking *m)
{
	return mark_word(i * 8, m, NAME_LONG);
}
ROUND(mark_word_of_huge)(u32 i, struct marking *m)
{
	return mark_word(i * 8, m, NAME_HUGE);
}

/* A hash of a name of `size` bytes, the NUL among them, in a buffer of `room`: up to the end of its last word, which is
 * cleared behind the name. */
static __always_inline u64 mark_of_name(char *name, u32 size, u32 room)
{
	struct marking m = { name, size, size };
	u32 at = size;

	for (int i = 1; i < 8; i++) {
		asm volatile("" : "+r"(at)); /* the verifier must see the bound */
		if (!(at & 7) || at >= room)
			break;
		name[at++] = 0;
	}
	switch (room) {
	case NAME_SHORT:
		REPEAT(NAME_SHORT / 8, mark_word_of_short, &m);
		break;
	case NAME_LONG:
		REPEAT(NAME_LONG / 8, mark_word_of_long, &m);
		break;
	case NAME_HUGE:
		REPEAT(NAME_HUGE / 8, mark_word_of_huge, &m);
		break;
	}
	return m.mark;
}

/* Takes a name into a record of a certain size, and sends it; false when it is too long. A name that cannot be told is one
 * all the same: whatever the handle was, it may be another kernel. */
#define EMIT_NAME(type, room, is_longest)                                                                              \
	({                                                                                                             \
		type *record_ = RESERVE_EVENT(type);                                                                   \
		int fits_ = 1;                                                                                         \
		long size_;                                                                                            \
		if (record_) {                                                                                         \
			fill_event(&record_->event, &who, EVENT_NAMED, handle, module, name, 0);                       \
			size_ = bpf_probe_read_user_str(record_->name, room, (void *)name);                            \
			fits_ = size_ < room || is_longest;                                                            \
			if (!fits_) {                                                                                  \
				bpf_ringbuf_discard(record_, BPF_RB_NO_WAKEUP);                                        \
			} else {                                                                                       \
				if (size_ <= 0) {                                                                      \
					lose(LOSS_READ_FAILED);                                                        \
					record_->name[0] = 0;                                                          \
					size_ = 1;                                                                     \
				}                                                                                      \
				record_->event.d = kernel_is(handle, mark_of_name(record_->name, size_, room));        \
				bpf_ringbuf_submit(record_, 0);                                                        \
			}                                                                                              \
		} else {                                                                                               \
			kernel_is(handle, bpf_ktime_get_ns());                                                         \
		}                                                                                                      \
		fits_;                                                                                                 \
	})

RARE int emit_huge_name(u64 handle, u64 module, u64 name)
{
	struct caller who;

	return identify(&who) && EMIT_NAME(struct huge_name, NAME_HUGE, 1);
}

RARE int emit_long_name(u64 handle, u64 module, u64 name)
{
	struct caller who;

	return identify(&who) && EMIT_NAME(struct long_name, NAME_LONG, 0);
}

/* Most names are short; only for the others is a long record taken. */
RARE int emit_name(u64 handle, u64 module, u64 name)
{
	struct caller who;

	if (identify(&who) && !EMIT_NAME(struct short_name, NAME_SHORT, 0) && !emit_long_name(handle, module, name))
		emit_huge_name(handle, module, name);
	return 0;
}

#endif
