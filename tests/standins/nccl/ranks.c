/* Ranks of one job, a process each, that meet at collectives on a communicator, and the truth of who arrived when.
 *
 *   ranks RANKS COLLECTIVES [late=RANK] [late_us=N] [from=SEQUENCE] [missing=RANK] [mismatch=RANK] [stuck=1] [at=SEQUENCE]
 *         [pause_us=N] [group=1]
 *
 * `late` comes so much later than all others, from a collective on. At the collective `at`, `missing` stays away, `mismatch` asks
 * for one element more, or all are there and `stuck`. Says "ready" with the ranks' pids, waits for a line, and says "made" when
 * there are communicators; waits for a line, and says "phase" with when each rank arrived, by CLOCK_MONOTONIC: of what never
 * comes to an end as soon as all have arrived that will. Then it waits for a last line. */
#define _GNU_SOURCE
#include "nccl.h"
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_RANKS 64

struct shared {
	uint32_t gate;	  /* how many phases were let go */
	uint32_t at_rest; /* ranks that wait for the next */
	ncclUniqueId id;
	uint32_t arrived[1]; /* of each collective, then the times of each rank at each */
};

static struct shared *shared;
static uint32_t *arrived;
static uint64_t *times;
static int ranks, collectives, rank;
static long late = -1, late_us, from = 1, missing = -1, mismatch = -1, stuck, at, pause_us, group;
static int sequence;

static void wait_while(uint32_t *word, uint32_t value)
{
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
		syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void add_one(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void wait_until(uint32_t *word, uint32_t value)
{
	for (uint32_t seen; (seen = __atomic_load_n(word, __ATOMIC_SEQ_CST)) < value;)
		wait_while(word, seen);
}

static void entered(ncclComm_t comm, uint64_t count)
{
	times[rank * (collectives + 1) + sequence] = now();
	add_one(&arrived[sequence]);
	if (stuck && sequence == at)
		pause();
	if (!group)
		wait_until(&arrived[sequence], ranks);
}

static void sleep_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	while (nanosleep(&t, &t))
		;
}

static void run_rank(void)
{
	ncclComm_t comm;
	float data[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	standin_entered = entered;
	add_one(&shared->at_rest);
	wait_until(&shared->gate, 1);
	if (ncclCommInitRank(&comm, ranks, shared->id, rank))
		_exit(3);
	add_one(&shared->at_rest);
	wait_until(&shared->gate, 2);
	for (sequence = 1; sequence <= collectives; sequence++) {
		if (pause_us)
			sleep_us(pause_us);
		if (rank == late && sequence >= from)
			sleep_us(late_us);
		if (rank == missing && sequence == at)
			pause();
		if (group)
			ncclGroupStart();
		if (ncclAllReduce(data, data, 16 + (rank == mismatch && sequence == at), 7, 0, comm, NULL))
			_exit(3);
		if (group) {
			ncclGroupEnd();
			wait_until(&arrived[sequence], ranks);
		}
	}
	add_one(&shared->at_rest);
	wait_until(&shared->gate, 3);
	_exit(0);
}

static void take_option(const char *text)
{
	static const struct {
		const char *name;
		long *value;
	} options[] = { { "late=", &late },	    { "late_us=", &late_us }, { "from=", &from }, { "missing=", &missing },
			{ "mismatch=", &mismatch }, { "stuck=", &stuck },     { "at=", &at },	  { "pause_us=", &pause_us },
			{ "group=", &group } };

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		if (!strncmp(text, options[i].name, strlen(options[i].name))) {
			*options[i].value = atol(text + strlen(options[i].name));
			return;
		}
	exit(2);
}

static void wait_for_line(void)
{
	int c;

	while ((c = getchar()) != '\n')
		if (c == EOF)
			exit(1);
}

int main(int argc, char **argv)
{
	pid_t pids[MOST_RANKS];
	size_t size;
	int good = 1, status;

	if (argc < 3 || (ranks = atoi(argv[1])) > MOST_RANKS)
		return 2;
	collectives = atoi(argv[2]);
	for (int i = 3; i < argc; i++)
		take_option(argv[i]);
	size = sizeof(*shared) + (collectives + 2) * 4UL + (ranks * (collectives + 1UL) + 1) * 8;
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 3;
	arrived = shared->arrived;
	times = (uint64_t *)(((uintptr_t)(arrived + collectives + 1) + 7) & ~7UL);
	ncclGetUniqueId(&shared->id);
	for (rank = 0; rank < ranks; rank++)
		if (!(pids[rank] = fork()))
			run_rank();
	wait_until(&shared->at_rest, ranks);
	printf("{\"event\": \"ready\", \"pids\": [");
	for (int i = 0; i < ranks; i++)
		printf("%s%d", i ? ", " : "", pids[i]);
	printf("], \"id\": [");
	for (int i = 0; i < 128; i++)
		printf("%s%d", i ? ", " : "", (unsigned char)shared->id.internal[i]);
	printf("]}\n");
	fflush(stdout);
	wait_for_line();
	add_one(&shared->gate);
	wait_until(&shared->at_rest, 2 * ranks);
	printf("{\"event\": \"made\"}\n");
	fflush(stdout);
	wait_for_line();
	add_one(&shared->gate);
	if (missing >= 0)
		wait_until(&arrived[at], ranks - 1);
	else if (stuck)
		wait_until(&arrived[at], ranks);
	else
		wait_until(&shared->at_rest, 3 * ranks);
	printf("{\"event\": \"phase\", \"arrivals\": [");
	for (int r = 0; r < ranks; r++) {
		printf("%s[", r ? ", " : "");
		for (int s = 1; s <= collectives; s++)
			printf("%s%llu", s > 1 ? ", " : "", (unsigned long long)times[r * (collectives + 1) + s]);
		printf("]");
	}
	printf("]}\n");
	fflush(stdout);
	wait_for_line();
	add_one(&shared->gate);
	for (int i = 0; i < ranks; i++) {
		if (missing >= 0 || stuck)
			kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
		good &= missing >= 0 || stuck || !status;
	}
	return !good;
}
