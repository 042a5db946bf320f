// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which code launches, waits, copies, allocates, runs? Stacks, taken of as many calls as the budget allows, each with
 * what it stands for. A second program on the sites of cuda.bpf.c, loaded only when profiles are asked for. */
#define ITS_LOSSES profile_lost
#include "lib/release_entries.bpf.c"
#include "profile/copies.bpf.c"
#include "profile/ends.bpf.c"
#include "profile/launches.bpf.c"
#include "profile/memory.bpf.c"
#include "profile/off_cpu.bpf.c"
#include "profile/on_cpu.bpf.c"
#include "profile/submissions.bpf.c"
#include "profile/torch.bpf.c"
#include "profile/waits.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
