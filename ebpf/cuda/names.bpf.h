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
	u64 size;
	u64 room;
};

ROUND(mark_word)(u32 i, struct marking *m)
{
	u64 at = i * 8ULL;

	asm volatile("" : "+r"(at)); /* the verifier must see the bound */
	if (at >= m->size || at > m->room - 8)
		return 1;
	m->mark = (m->mark ^ *(const u64 *)(m->name + at)) * 0x100000001b3ULL;
	m->mark ^= m->mark >> 32;
	return 0;
}

/* A hash of a name of `size` bytes, the NUL among them, in a buffer of `room`: up to the end of its last word, which is
 * cleared behind the name. */
static __always_inline u64 mark_of_name(char *name, u64 size, u64 room)
{
	struct marking m = { name, size, size, room };
	u64 at = size;

	for (int i = 1; i < 8; i++) {
		asm volatile("" : "+r"(at)); /* the verifier must see the bound */
		if (!(at & 7) || at >= room)
			break;
		name[at++] = 0;
	}
	REPEAT(room / 8, mark_word, &m);
	return m.mark;
}

/* Sends a name in a record with so much room for it; false when it is too long. The verifier goes this way once for each
 * size, and sees a number there. A name that cannot be told is one all the same: whatever the handle was, it may be another
 * kernel. */
RARE int emit_name_within(u64 handle, u64 module, u64 name, u32 longest)
{
	u64 room = longest == NAME_SHORT ? NAME_SHORT : longest == NAME_LONG ? NAME_LONG : NAME_HUGE;
	struct name_event *record = NULL;
	struct caller who;
	long size;

	if (!identify(&who))
		return 1;
	if (may_tell(sizeof(*record) + room)) {
		record = bpf_ringbuf_reserve(&events, sizeof(*record) + room, 0);
		if (!record)
			lose(LOSS_EVENTS_FULL);
	}
	if (!record) {
		kernel_is(handle, bpf_ktime_get_ns());
		return 1;
	}
	fill_event(&record->event, &who, EVENT_NAMED, handle, module, name, 0);
	size = bpf_probe_read_user_str(record->name, room, (void *)name);
	if (size == (long)room && room != NAME_HUGE) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return 0;
	}
	if (size <= 0) {
		lose(LOSS_READ_FAILED);
		record->name[0] = 0;
		size = 1;
	}
	record->event.d = kernel_is(handle, mark_of_name(record->name, size, room));
	bpf_ringbuf_submit(record, 0);
	return 1;
}

/* Most names are short; only for the others is a long record taken. */
RARE int emit_name(u64 handle, u64 module, u64 name)
{
	if (!emit_name_within(handle, module, name, NAME_SHORT) && !emit_name_within(handle, module, name, NAME_LONG))
		emit_name_within(handle, module, name, NAME_HUGE);
	return 0;
}

#endif
