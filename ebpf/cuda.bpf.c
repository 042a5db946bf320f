// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The functions of the CUDA driver, and those of HIP that do the same. One program per shape of function; what differs
 * inside a shape comes with the attach cookie (abi/cookies.h), made from the hook tables in otel_gpu/probes/table.py and hip.py. */
#include "cuda/contexts.bpf.c"
#include "cuda/copies.bpf.c"
#include "cuda/launches.bpf.c"
#include "cuda/lifetimes.bpf.c"
#include "cuda/memory.bpf.c"
#include "cuda/names.bpf.c"
#include "cuda/reported_calls.bpf.c"
#include "cuda/streams.bpf.c"
#include "cuda/virtual_memory.bpf.c"
#include "cuda/waits.bpf.c"
#include "lib/release_entries.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
