/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who a program is, as it shows itself. */
#ifndef OTEL_GPU_ABI_IDENTITY_H
#define OTEL_GPU_ABI_IDENTITY_H

#include "abi/events.h"
#include "abi/types.h"

#define IDENTITY_NAMES 1024 /* bytes behind which no other name begins */
#define IDENTITY_NAME 256   /* of one directory or control group, NUL included */
#define IDENTITY_ARGUMENTS 1024
#define IDENTITY_ENVIRONMENT 8192

/* Names on a way up a tree, the lowest first, each ended by NUL. */
struct names {
	char text[IDENTITY_NAMES + IDENTITY_NAME];
};

/* Who a program is, as the kernel knows it. */
struct identity {
	char comm[16];
	u32 path_bytes;	     /* the last name only, where no way was walked */
	u32 groups_bytes;    /* none there */
	u32 arguments_bytes; /* as many as there are; what does not fit is cut, what is not readable is zeros */
	u32 environment_bytes;
	struct names path;   /* of its executable */
	struct names groups; /* control groups: of version 2 or, where that has none, of a controller */
	char arguments[IDENTITY_ARGUMENTS];
	char environment[IDENTITY_ENVIRONMENT];
};
_Static_assert(sizeof(struct identity) == 32 + 2 * 1280 + 1024 + 8192, "identity crosses the border");
struct program_event {
	struct event event;
	struct identity identity;
};

#endif
