// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The requests that programs serve, and who works for them: on their sockets, on CPython, and where threads begin, wait and
 * end. What the GPU did for them is added where it is counted, by cuda.bpf.c. */
#include "inference/births.bpf.c"
#include "inference/callbacks.bpf.c"
#include "inference/engines.bpf.c"
#include "inference/finish.bpf.c"
#include "inference/hand_off.bpf.c"
#include "inference/hand_over.bpf.c"
#include "inference/http2.bpf.c"
#include "inference/pipes.bpf.c"
#include "inference/sockets.bpf.c"
#include "inference/tls.bpf.c"
#include "lib/release_entries.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
