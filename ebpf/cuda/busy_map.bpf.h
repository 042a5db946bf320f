/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where is it kept what is known of devices' work? Apart, since both objects use it. */
#ifndef OTEL_GPU_CUDA_BUSY_MAP_BPF_H
#define OTEL_GPU_CUDA_BUSY_MAP_BPF_H

#include "abi/busy.h"
#include "lib/caller.bpf.h"

/* Written here, read by the agent, which removes those of ended processes. Sized for processes times devices. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, struct busy_key);
	__type(value, struct busy);
} busy SEC(".maps");

static __always_inline void busy_key_of(struct busy_key *key, const struct caller *who, u32 device)
{
	union {
		struct busy_key key;
		u64 word[2]; /* each written at once, as in launch_key() */
	} words = { .word = { (u64)who->exec_id << 32 | who->tgid, device } };

	*key = words.key;
}

#endif
