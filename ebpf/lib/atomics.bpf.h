/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Atomic steps that say what was there before. Kernels before 5.12 refuse a program in which such an instruction stands, used
 * or not: objects that such a kernel loads do with less. */
#ifndef OTEL_GPU_LIB_ATOMICS_BPF_H
#define OTEL_GPU_LIB_ATOMICS_BPF_H

#ifndef BEFORE_5_17
/* Puts `to` in the place of `from`; false when something else is there. */
#define CHANGES(at, from, to) (__sync_val_compare_and_swap(at, from, to) == (from))
/* One more, and how many there are then. */
#define COUNT_UP(n) (__sync_fetch_and_add(n, 1) + 1)
#else
/* Requests, which need it, are followed from 6.3 on. */
#define CHANGES(at, from, to) ((void)(at), 0)
/* Two at once may be told the same. */
#define COUNT_UP(n) (__sync_fetch_and_add(n, 1), *(volatile __typeof__(*(n)) *)(n))
#endif

#endif
