/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* On which side does memory lie, and which way does a copy between two sides go? */
#ifndef OTEL_GPU_CUDA_WHERE_BPF_H
#define OTEL_GPU_CUDA_WHERE_BPF_H

#include "abi/rows.h"
#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>

/* Where memory lies; in a number, the device stands behind it. */
enum lies {
	LIES_NOWHERE, /* to be looked up, or to be taken out of what is looked up */
	LIES_UNKNOWN,
	LIES_PAGEABLE, /* in the host's memory */
	LIES_PINNED,   /* in the host's, page-locked */
	LIES_DEVICE,   /* in a device's, or managed, of which nobody knows the device */
};
#define LIES_ON(device) (LIES_DEVICE | (u32)(device) << 8)
#define LIES(where) ((u8)(where))
#define DEVICE_OF(where) ((u8)((where) >> 8))

static __always_inline int is_on_host(u32 where)
{
	return LIES(where) == LIES_PAGEABLE || LIES(where) == LIES_PINNED;
}

/* From here to there: COPY_DEFAULT where one of the two is not known. */
static __always_inline u8 kind_between(u32 from, u32 to)
{
	if (LIES(from) == LIES_UNKNOWN || LIES(to) == LIES_UNKNOWN)
		return COPY_DEFAULT;
	if (is_on_host(from))
		return is_on_host(to) ? COPY_HOST_TO_HOST : COPY_HOST_TO_DEVICE;
	if (is_on_host(to))
		return COPY_DEVICE_TO_HOST;
	if (DEVICE_OF(from) == DEVICE_UNKNOWN || DEVICE_OF(to) == DEVICE_UNKNOWN || DEVICE_OF(from) == DEVICE_OF(to))
		return COPY_DEVICE_TO_DEVICE;
	return COPY_PEER;
}

/* Host memory on the host's side of a copy of that kind. */
static __always_inline u8 host_memory_between(u8 kind, u32 from, u32 to)
{
	u32 side = kind == COPY_DEVICE_TO_HOST ? to : from;

	if (!is_on_host(side) || kind == COPY_DEFAULT)
		return HOST_MEMORY_NONE;
	return LIES(side) == LIES_PINNED ? HOST_MEMORY_PINNED : HOST_MEMORY_PAGEABLE;
}

#endif
