/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When did which rank arrive at which collective? A bounded trickle, of which all ranks choose the same. */
#ifndef OTEL_GPU_NCCL_ARRIVALS_BPF_H
#define OTEL_GPU_NCCL_ARRIVALS_BPF_H

#include "abi/nccl.h"
#include "lib/shares.bpf.h"

/* Read once an interval, or when the agent looks by itself: nobody is woken. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} nccl_arrivals SEC(".maps");

/* Set before loading. */
const volatile u32 arrivals_per_second = 256; /* of a communicator; a power of two; 0: none */

/* Whether this collective is told. Beyond the budget every second, fourth, eighth ... is, by its number: each rank decides
 * for itself, and of two that decide otherwise the one's are among the other's. */
static __always_inline int is_told(struct nccl_comm *comm, u64 sequence, u64 now)
{
	u64 second = now >> 30;
	u32 over, mask = 0;

	if (comm->began_second != second) {
		over = arrivals_per_second ? comm->in_second / arrivals_per_second : 0;
#pragma unroll
		for (int i = 0; i < 12; i++)
			mask |= over >> i;
		comm->mask = second - comm->began_second == 1 ? mask : 0;
		comm->began_second = second;
		comm->in_second = 0;
	}
	comm->in_second++;
	/* The first second has no one before it. */
	if (!comm->mask && comm->in_second > 4 * arrivals_per_second)
		return 0;
	return arrivals_per_second && !(sequence & comm->mask);
}

/* Whether the calling program may have one more record of the ring. */
RARE int may_arrive(void)
{
	struct program *program;
	struct caller who;

	if (!identify(&who))
		return 0;
	program = program_of(&who);
	if (program && may_send(&nccl_arrivals, &program->arrivals, sizeof(struct nccl_arrival)))
		return 1;
	lose_of(program, LOSS_ARRIVALS_FULL);
	return 0;
}

static __always_inline void arrive(const struct nccl_arrival *arrival)
{
	if (may_arrive() && bpf_ringbuf_output(&nccl_arrivals, (void *)arrival, sizeof(*arrival), BPF_RB_NO_WAKEUP))
		lose(LOSS_ARRIVALS_FULL);
}

#endif
