// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What becomes of steps that no next one ends? They are told by the agent, and at the end of their thread. */
#include "inference/charges.bpf.h"
#include "inference/steps.bpf.h"

struct bpf_for_each {
	u64 seen_before;
	u64 began_before;
};

static long tell_old_step(struct bpf_map *map, const u64 *task, struct step *s, struct bpf_for_each *which)
{
	if (s->state == STEP_SEEN && s->seen_ns < which->seen_before && step_changes(s, STEP_SEEN, STEP_TAKEN))
		tell_step(s, s->seen_ns);
	if (s->state == STEP_GOES_ON && s->began_ns < which->began_before && step_changes(s, STEP_GOES_ON, STEP_TAKEN))
		tell_step(s, s->last_ns);
	return 0;
}

/* (two times): tells steps that the host saw done before the first, and those that began before the second. Run by the
 * agent. */
SEC("raw_tp")
int tell_steps(u64 *ctx)
{
	struct bpf_for_each which = { ctx[0], ctx[1] };

	bpf_for_each_map_elem(&steps, tell_old_step, &which, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int step_thread_ends(u64 *ctx)
{
	u64 task = bpf_get_current_task();
	struct step *s = bpf_map_lookup_elem(&steps, &task);
	struct gpu_totals *nobody;

	if (!s)
		return 0;
	if (s->state && !tell_step(s, s->state == STEP_SEEN ? s->seen_ns : s->last_ns)) {
		nobody = nobodys(s->tgid, s->exec_id, NO_OWNER_FULL);
		if (nobody)
			add_totals(nobody, &s->totals, 1);
	}
	take_out(&steps, TABLE_STEPS, s->tgid, s->exec_id, &task);
	return 0;
}
