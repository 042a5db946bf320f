// SPDX-License-Identifier: Apache-2.0
/* How does a program tell observers who it is, and which span is current in a thread? In its memory, laid out as OpenTelemetry's
 * OTEPs 4719 (process context) and 4947 (thread context) say. The caller has one thread at a time publish the process's. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define SIGNATURE "OTEL_CTX"
#define VERSION 2
#define NOEXEC_SEAL 8 /* MFD_NOEXEC_SEAL, of Linux 6.3 */
#define SET_VMA 0x53564d41 /* PR_SET_VMA, of Linux 5.17 */
#define SET_VMA_ANON_NAME 0

struct header {
    char signature[8];
    uint32_t version;
    uint32_t payload_size;
    _Atomic uint64_t monotonic_published_at_ns; /* 0: being written */
    void *payload;
};

struct record {
    uint8_t trace_id[16];
    uint8_t span_id[8];
    uint8_t valid;
    uint8_t trace_flags;
    uint16_t attributes_size;
} __attribute__((packed, aligned(2)));

_Static_assert(sizeof(struct header) == 32, "as OTEP 4719 lays it out");
_Static_assert(sizeof(struct record) == 28, "as OTEP 4947 lays it out");

EXPORTED __thread struct record *otel_thread_ctx_v1;
static __thread struct record record;

static struct header *published;
static pid_t publisher;
static size_t mapping_size;

/* The mapping, named by its file where that can be. */
static struct header *map_header(void)
{
    int file = memfd_create(SIGNATURE, MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC_SEAL);
    void *at = MAP_FAILED;

    if (file < 0 && errno == EINVAL)
        file = memfd_create(SIGNATURE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file >= 0) {
        if (!ftruncate(file, mapping_size))
            at = mmap(NULL, mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        close(file);
    } else {
        at = mmap(NULL, mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at != MAP_FAILED && prctl(SET_VMA, SET_VMA_ANON_NAME, at, mapping_size, SIGNATURE)) {
            munmap(at, mapping_size);
            at = MAP_FAILED;
        }
    }
    /* A child would tell of its parent. */
    if (at != MAP_FAILED && madvise(at, mapping_size, MADV_DONTFORK)) {
        munmap(at, mapping_size);
        at = MAP_FAILED;
    }
    return at == MAP_FAILED ? NULL : at;
}

static uint64_t later_than(uint64_t before_ns)
{
    struct timespec now;
    uint64_t ns;

    clock_gettime(CLOCK_BOOTTIME, &now);
    ns = now.tv_sec * 1000000000ULL + now.tv_nsec;
    return ns > before_ns ? ns : before_ns + 1;
}

/* Says who this process is, by a serialized ProcessContext of OTLP's. 0, or what errno would be. */
EXPORTED int otel_gpu_publish_process(const void *payload, uint32_t size)
{
    void *copy = malloc(size ? size : 1), *old = NULL;
    uint64_t before_ns;

    if (!copy)
        return ENOMEM;
    memcpy(copy, payload, size);
    if (publisher != getpid()) { /* a child of who published does not have the mapping */
        mapping_size = sysconf(_SC_PAGESIZE);
        published = map_header();
        publisher = published ? getpid() : 0;
        if (!published) {
            free(copy);
            return errno ? errno : ENOMEM;
        }
        published->version = VERSION;
        published->payload_size = size;
        published->payload = copy;
        atomic_store(&published->monotonic_published_at_ns, later_than(0));
        atomic_thread_fence(memory_order_seq_cst);
        memcpy(published->signature, SIGNATURE, sizeof(published->signature));
    } else {
        before_ns = atomic_exchange(&published->monotonic_published_at_ns, 0);
        atomic_thread_fence(memory_order_seq_cst);
        old = published->payload;
        published->payload = copy;
        published->payload_size = size;
        atomic_thread_fence(memory_order_seq_cst);
        atomic_store(&published->monotonic_published_at_ns, later_than(before_ns));
    }
    prctl(SET_VMA, SET_VMA_ANON_NAME, published, mapping_size, SIGNATURE);
    free(old);
    return 0;
}

/* Whoever reads has stopped this thread: only the compiler could change the order. */
EXPORTED void otel_gpu_publish_no_span(void)
{
    otel_thread_ctx_v1 = NULL;
    atomic_signal_fence(memory_order_seq_cst);
}

/* Says which span is current in this thread: its trace's id, its own id, the trace's flags. */
EXPORTED void otel_gpu_publish_span(const uint8_t ids[25])
{
    otel_gpu_publish_no_span();
    memcpy(record.trace_id, ids, sizeof(record.trace_id));
    memcpy(record.span_id, ids + sizeof(record.trace_id), sizeof(record.span_id));
    record.trace_flags = ids[24];
    record.valid = 1;
    atomic_signal_fence(memory_order_seq_cst);
    otel_thread_ctx_v1 = &record;
}
