// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What do programs ask of their RDMA devices, by way of libibverbs and its providers? Kernel 5.17. */
#include "lib/release_entries.bpf.c"
#include "rdma/completions.bpf.c"
#include "rdma/control.bpf.c"
#include "rdma/extended.bpf.c"
#include "rdma/extended_completions.bpf.c"
#include "rdma/posts.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
