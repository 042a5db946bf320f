// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The functions of NCCL, and of RCCL, which has the same: collectives, messages, groups, and the lives of communicators. What
 * differs between functions comes with the attach cookie (abi/nccl.h), made from the table in otel_gpu/receivers/nccl/table.py. */
#include "lib/release_entries.bpf.c"
#include "nccl/collectives.bpf.c"
#include "nccl/communicators.bpf.c"
#include "nccl/groups.bpf.c"
#include "nccl/waits.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
