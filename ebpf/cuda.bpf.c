// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The functions of the CUDA driver, and those of HIP that do the same. One program per shape of function; what differs
 * inside a shape comes with the attach cookie (abi.h), made from the hook tables in otel_gpu/probes/table.py and hip.py. */
#include "cuda/contexts.bpf.h"
#include "cuda/copies.bpf.h"
#include "cuda/facts.bpf.h"
#include "cuda/launches.bpf.h"
#include "cuda/lives.bpf.h"
#include "cuda/memory.bpf.h"
#include "cuda/streams.bpf.h"
#include "cuda/virtual_memory.bpf.h"
#include "cuda/waits.bpf.h"
#include "lib/give_back.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
