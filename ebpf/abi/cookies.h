/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The attach cookie: what a program must know about the function it sits on. */
#ifndef OTEL_GPU_ABI_COOKIES_H
#define OTEL_GPU_ABI_COOKIES_H

#include "abi/types.h"

/* Where each part of a cookie begins; below the first is the row of the hook table. */
#define COOKIE_KIND_BIT 16 /* copy kind, memory type */
#define COOKIE_FLAGS_BIT 24
#define COOKIE_STREAM_BIT 32  /* argument number of the stream */
#define COOKIE_HOST_BIT 36    /* argument number of the host pointer */
#define COOKIE_SIZE_BIT 40    /* argument number of the size in elements, or of the struct */
#define COOKIE_SIZE2_BIT 44   /* argument number of its second factor */
#define COOKIE_OUT_BIT 48     /* argument number of the address, or of where it will be written */
#define COOKIE_SHIFT_BIT 52   /* log2 of the element size */
#define COOKIE_KIND_AT_BIT 56 /* argument number of the copy kind, where it is one */
#define COOKIE_LIBRARY_BIT 60 /* number of the library that the function is in */

#define COOKIE_FUNCTION(c) ((u16)(c))
#define COOKIE_KIND(c) ((u8)((c) >> COOKIE_KIND_BIT))
#define COOKIE_FLAGS(c) ((u8)((c) >> COOKIE_FLAGS_BIT))
#define COOKIE_STREAM(c) ((u8)((c) >> COOKIE_STREAM_BIT) & 15)
#define COOKIE_HOST(c) ((u8)((c) >> COOKIE_HOST_BIT) & 15)
#define COOKIE_SIZE(c) ((u8)((c) >> COOKIE_SIZE_BIT) & 15)
#define COOKIE_SIZE2(c) ((u8)((c) >> COOKIE_SIZE2_BIT) & 15)
#define COOKIE_OUT(c) ((u8)((c) >> COOKIE_OUT_BIT) & 15)
#define COOKIE_SHIFT(c) ((u8)((c) >> COOKIE_SHIFT_BIT) & 15)
#define COOKIE_KIND_AT(c) ((u8)((c) >> COOKIE_KIND_AT_BIT) & 15)
#define COOKIE_LIBRARY(c) ((u32)((c) >> COOKIE_LIBRARY_BIT))
#define ARGUMENT_NONE 15

#define LIBRARIES 16 /* numbers of libraries; a further one has that of an earlier one */

/* What a waiting or asking call is about, in its kind. */
enum wait_kind {
	WAIT_CONTEXT,
	WAIT_STREAM,
	WAIT_EVENT,
};

#define CALL_ADDS_NODE 2	/* kind of a recorded call: its data begins with the node's type */
#define CALL_RESETS_PRIMARY 3	/* kind of a recorded call: its id is the device's primary context, 0 if unknown */
#define CALL_RELEASES_PRIMARY 4 /* the same, when that was the last reference; else the call is not told of */
#define CALL_ENDS_CAPTURE 1	/* kind of a recorded call: its stream's capture is over, even if it fails */
#define CALL_UNLOADS 6		/* kind of a recorded call: handles of kernels may be given out again */
#define CALL_ALIASES 5		/* kind of a recorded call: what it returns is the kernel in its second argument */
#define CALL_DESTROYS_EXEC 7	/* kind of a recorded call: the executable graph in its first argument is no more */

#define CALL_DESTROYS_GREEN                                                                                            \
	8 /* the same as CALL_RELEASES_PRIMARY, of the device of the green context in its first argument */

#define CONTEXT_GREEN 1 /* kind of a call that makes a context: a green one, which retains its device's primary one */

#define FLAG_PER_THREAD 1 /* stream 0 means the thread's own (_ptsz, _ptds) */
#define FLAG_DIRECT 2	  /* the address is an argument, not a result */
#define FLAG_PITCHED 4	  /* the size is *pitch times a factor, known at return */
#define FLAG_RESULT 8	  /* the out parameter points to data, not to a handle */
#define FLAG_EXEC 16	  /* an executable graph changes: its launches count under a new id */
#define FLAG_PUSH 32	  /* the context becomes current as well */
#define FLAG_INNER 128	  /* another function of the same number may be this call's caller, and counts it */

#endif
