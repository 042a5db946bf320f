// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* How does the agent, which takes entries out of tables too, give back their places? */
#include "lib/shares.bpf.h"

/* (tgid, exec_id, enum table, entries): run by the agent, like a function. */
struct bpf_raw_tracepoint_args {
	u64 args[0];
};

SEC("raw_tp")
int release_entries(struct bpf_raw_tracepoint_args *ctx)
{
	release_quota(program_numbered(ctx->args[0], ctx->args[1]), ctx->args[2], ctx->args[3]);
	return 0;
}
