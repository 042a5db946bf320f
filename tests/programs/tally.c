// SPDX-License-Identifier: Apache-2.0
#include "tally.h"
#include <unistd.h>

static const char *const copy_kinds[COPY_KINDS] = {
    "MemcpyHostToDevice", "MemcpyDeviceToHost", "MemcpyDeviceToDevice", "MemcpyDefault", "MemcpyPeer",
};
static const char *const host_types[HOST_TYPES] = {"", "pageable", "pinned"};
static const char *const memories[MEMORIES] = {"device", "host", "managed", "registered", "async", "virtual"};
static const char *const sync_calls[SYNC_CALLS] = {
    "cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuEventSynchronize", "cuCtxSynchronize",
};

void tally_add(struct tally *sum, const struct tally *part)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)part;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}

static void print_amounts(const char *name, const struct amount *amounts)
{
    printf(",\"%s\":{", name);
    for (int i = 0; i < MEMORIES; i++)
        printf("%s\"%s\":{\"count\":%lu,\"bytes\":%lu}", i ? "," : "", memories[i], amounts[i].count, amounts[i].bytes);
    printf("}");
}

void tally_print(const struct tally *tally, const char *event, int phase)
{
    const char *comma = "";
    printf("{\"event\":\"%s\",\"pid\":%d,\"phase\":%d,\"kernels\":{", event, getpid(), phase);
    for (int k = 0; k < KERNELS; k++)
        printf("%s\"%s\":{\"launches\":%lu,\"grid_blocks\":%lu,\"block_threads\":%lu}", k ? "," : "", kernel_names[k],
               tally->kernels[k].launches, tally->kernels[k].grid_blocks, tally->kernels[k].block_threads);
    printf("},\"captured\":%lu,\"graph_launches\":%lu,\"graph_kernels\":%lu,\"copies\":[", tally->captured,
           tally->graph_launches, tally->graph_kernels);
    for (int k = 0; k < COPY_KINDS; k++)
        for (int h = 0; h < HOST_TYPES; h++) {
            const struct amount *copied = &tally->copies[k][h];
            if (!copied->count)
                continue;
            printf("%s{\"kind\":\"%s\",\"host\":\"%s\",\"count\":%lu,\"bytes\":%lu}", comma, copy_kinds[k],
                   host_types[h], copied->count, copied->bytes);
            comma = ",";
        }
    printf("],\"memset\":{\"count\":%lu,\"bytes\":%lu}", tally->memsets.count, tally->memsets.bytes);
    print_amounts("allocated", tally->allocated);
    print_amounts("freed", tally->freed);
    printf(",\"syncs\":{");
    for (int s = 0; s < SYNC_CALLS; s++)
        printf("%s\"%s\":%lu", s ? "," : "", sync_calls[s], tally->syncs[s]);
    printf("},\"failed_allocs\":%lu,\"failed_frees\":%lu}\n", tally->failed_allocs, tally->failed_frees);
    fflush(stdout);
}
