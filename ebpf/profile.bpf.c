// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which code launches, waits, copies, allocates, runs? Stacks, taken of as many calls as the budget allows, each with
 * what it stands for. A second program on the sites of cuda.bpf.c, loaded only when profiles are asked for. */
#define ITS_LOSSES profile_lost
#include "lib/give_back.bpf.h"
#include "profile/copies.bpf.h"
#include "profile/ends.bpf.h"
#include "profile/launches.bpf.h"
#include "profile/memory.bpf.h"
#include "profile/off_cpu.bpf.h"
#include "profile/on_cpu.bpf.h"
#include "profile/submissions.bpf.h"
#include "profile/torch.bpf.h"
#include "profile/waits.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
