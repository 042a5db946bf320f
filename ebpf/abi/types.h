/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Integers by their size, on every machine and in every compiler. */
#ifndef OTEL_GPU_ABI_TYPES_H
#define OTEL_GPU_ABI_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef u32 be32; /* the highest byte first, as generated code reads it too */

#endif
