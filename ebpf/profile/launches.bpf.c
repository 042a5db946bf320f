// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of launches: which code launches? */
#include "abi/cookies.h"
#include "abi/samples.h"
#include "cuda/capture.bpf.h"
#include "profile/stacks.bpf.h"

#define LAUNCH_CONFIG_STREAM 32 /* in struct CUlaunchConfig */

/* The kernel's handle is the argument that the cookie's `out` names, the stream the one that `stream` names or a field
 * of the structure in argument 0. */
SEC("uprobe")
int profile_launch(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), stream = 0;
	struct weight w = weight_of(1);
	u32 at = COOKIE_STREAM(cookie);
	struct caller who;

	if (!identify(&who))
		return 0;
	if (at != ARGUMENT_NONE)
		stream = argument(ctx, at);
	else
		bpf_probe_read_user(&stream, sizeof(stream), (void *)(argument(ctx, 0) + LAUNCH_CONFIG_STREAM));
	if (capturing_stream(&who, stream, COOKIE_FLAGS(cookie)))
		return 0;
	if (is_due(&who, SAMPLE_LAUNCH, &w) &&
	    !take_at_entry(ctx, &who, SAMPLE_LAUNCH, cookie, &w, argument(ctx, COOKIE_OUT(cookie))))
		keep(sampler_of(&who, SAMPLE_LAUNCH), w.value, w.calls);
	return 0;
}
