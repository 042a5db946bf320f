/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The name of a kernel by the driver's own record of it, read by the thread that launches: at no other time is it as certain
 * that the record is there, and of a program that ends at once there is no other time. */
#ifndef OTEL_GPU_CUDA_RECORDS_BPF_H
#define OTEL_GPU_CUDA_RECORDS_BPF_H

#include "abi/cookies.h"
#include "abi/events.h"
#include "lib/events.bpf.h"

/* How the records of each library lead to names, as programs have shown the agent, which writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LIBRARIES);
	__type(key, u32);
	__type(value, struct record_ways);
} record_ways SEC(".maps");

/* Sends a text in a record with so much room for it; false when it is too long. */
RARE int emit_text_within(u64 handle, u64 text, u32 longest)
{
	u64 room = longest == NAME_SHORT ? NAME_SHORT : NAME_LONG;
	struct name_event *record;
	struct caller who;
	long size;

	if (!identify(&who) || !may_tell(sizeof(*record) + room))
		return 1;
	record = bpf_ringbuf_reserve(&events, sizeof(*record) + room, 0);
	if (!record) {
		lose(LOSS_EVENTS_FULL);
		return 1;
	}
	fill_event(&record->event, &who, EVENT_RECORDED, handle, 0, 0, 0);
	size = bpf_probe_read_user_str(record->name, room, (void *)text);
	if (size <= 1 || size == (long)room) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return size <= 1;
	}
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 1;
}

/* Sends where each way leads to from a handle. */
RARE int emit_recorded(u64 handle, u32 library)
{
	struct record_ways *known = bpf_map_lookup_elem(&record_ways, &library);

	if (!known)
		return 0;
#pragma unroll
	for (int i = 0; i < WAYS_AT_ONCE; i++) {
		struct record_way *way = &known->ways[i];
		u32 steps = way->steps;
		u64 at = handle;

		if (!steps)
			break;
		if (steps > 1 && bpf_probe_read_user(&at, sizeof(at), (void *)(at + way->offsets[0])))
			continue;
		if (steps > 2 && bpf_probe_read_user(&at, sizeof(at), (void *)(at + way->offsets[1])))
			continue;
		at += steps > 2 ? way->offsets[2] : steps > 1 ? way->offsets[1] : way->offsets[0];
		if (!emit_text_within(handle, at, NAME_SHORT))
			emit_text_within(handle, at, NAME_LONG);
	}
	return 0;
}

#endif
