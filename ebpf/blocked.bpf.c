// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What do threads wait for that have been at it since before anybody looked, or still are? Kernel 6.1. */
#include "profile/blocked.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
