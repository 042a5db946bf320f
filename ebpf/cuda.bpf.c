// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The functions of the CUDA driver, and those of HIP that do the same. One program per shape of function; what differs
 * inside a shape comes with the attach cookie (abi.h), made from the hook tables in otel_gpu/probes/table.py and hip.py. */
#include "contexts.bpf.h"
#include "copies.bpf.h"
#include "facts.bpf.h"
#include "give_back.bpf.h"
#include "launches.bpf.h"
#include "lives.bpf.h"
#include "memory.bpf.h"
#include "streams.bpf.h"
#include "virtual_memory.bpf.h"
#include "waits.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
