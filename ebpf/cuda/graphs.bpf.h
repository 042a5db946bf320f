/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What does an executable graph hold? A version of it, a new one at each change. */
#ifndef OTEL_GPU_CUDA_GRAPHS_BPF_H
#define OTEL_GPU_CUDA_GRAPHS_BPF_H

#include "abi/programs.h"
#include "cuda/device.bpf.h"

/* Executable graphs -> what their launches count under: a new number at each change, so that a launch is known
 * to be of the contents that the graph had then. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct context_key); /* the graph in place of a context */
	__type(value, u64);
} graphs SEC(".maps");

RARE int learn_version(u64 exec, u64 version)
{
	struct context_key key;
	struct caller who;
	u64 *known;

	if (!identify(&who))
		return 0;
	key = (struct context_key){ who.tgid, who.exec_id, exec };
	known = bpf_map_lookup_elem(&graphs, &key);
	if (known)
		*known = version;
	else if (!PUT_IN(graphs, TABLE_GRAPHS, &who, &key, &version))
		lose(LOSS_GRAPHS_FULL);
	return 0;
}

/* An executable graph is no more: its address may become another's. */
static __always_inline void forget_version(const struct caller *who, u64 exec)
{
	struct context_key key = { who->tgid, who->exec_id, exec };

	TAKE_OUT(graphs, TABLE_GRAPHS, who, &key);
}

static __always_inline u64 version_of(const struct caller *who, u64 exec)
{
	struct context_key key = { who->tgid, who->exec_id, exec };
	u64 *version = bpf_map_lookup_elem(&graphs, &key);

	return version ? *version : exec;
}

#endif
