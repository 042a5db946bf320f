/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A live allocation. */
#ifndef OTEL_GPU_ABI_MEMORY_H
#define OTEL_GPU_ABI_MEMORY_H

#include "abi/types.h"

/* A live allocation. */
struct live_key {
	u32 tgid;
	u32 exec_id;
	u64 address; /* device or host pointer, or VMM handle */
};
_Static_assert(sizeof(struct live_key) == 16, "live_key crosses the border");

struct live {
	u64 size;
	u64 since_ns; /* CLOCK_MONOTONIC */
	u64 context;  /* with which it ends; 0 when it was made before we looked */
	u8 type;
	u8 device;
	u16 refs; /* of a VMM handle */
	u32 maps; /* how often it is mapped; its memory goes with the last reference and mapping */
};
_Static_assert(sizeof(struct live) == 32, "live crosses the border");

#endif
