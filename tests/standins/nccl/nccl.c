/* NCCL's names and argument layouts, without GPUs: a communicator is a rank, a collective is whatever `standin_entered` does.
 * As in NCCL, ncclBcast calls ncclBroadcast, ncclCommInitAll begins a group of its own, and `pncclX` is `ncclX`. */
#include "nccl.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INVALID_ARGUMENT 4

struct ncclComm {
	char before[0x44b8];
	int rank;
	int ranks;
};

void (*standin_entered)(ncclComm_t comm, uint64_t count);
ncclResult_t standin_result;
void *(*standin_create_qp)(void *pd, void *attr);
void *standin_pd, *standin_attr, *standin_qp;
int standin_split_rank, standin_split_ranks;

static ncclResult_t begin(ncclComm_t comm, uint64_t count)
{
	if (!comm)
		return INVALID_ARGUMENT;
	if (standin_entered)
		standin_entered(comm, count);
	/* Connections are made when they are first needed, by functions that NCCL has by pointer. */
	if (standin_create_qp)
		standin_qp = standin_create_qp(standin_pd, standin_attr);
	return standin_result;
}

#define DEFINE(name, arguments)                                                                                        \
	ncclResult_t nccl##name arguments                                                                              \
	{                                                                                                              \
		return begin(comm, count);                                                                             \
	}                                                                                                              \
	extern __typeof(nccl##name) pnccl##name __attribute__((alias("nccl" #name)));
STANDIN_COLLECTIVES(DEFINE)
STANDIN_MESSAGES(DEFINE)

ncclResult_t ncclBcast(void *buffer, size_t count, int type, int root, ncclComm_t comm, stream_t stream)
{
	return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

/* The configuration is one more argument, which nothing here looks at. */
ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,
				 stream_t stream, void *config)
{
	return begin(comm, count);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	int random = open("/dev/urandom", O_RDONLY);
	ssize_t size;

	/* As in NCCL, much of it is the same in all: of 128 bytes the last ones differ. */
	memset(id, 7, sizeof(*id));
	size = read(random, id->internal + 112, 16);
	close(random);
	return size == 16 ? 0 : 2;
}

static ncclResult_t make(ncclComm_t *made, int rank, int ranks)
{
	if (rank < 0 || rank >= ranks)
		return INVALID_ARGUMENT;
	*made = calloc(1, sizeof(struct ncclComm));
	(*made)->rank = rank;
	(*made)->ranks = ranks;
	return standin_result;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, void *config)
{
	return make(comm, rank, ranks);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
	return ncclCommInitRankConfig(comm, ranks, id, rank, NULL);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int ids, ncclUniqueId *id, void *config)
{
	return make(comm, rank, ranks);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int devices, const int *list)
{
	ncclUniqueId id;

	ncclGroupStart();
	ncclGetUniqueId(&id);
	for (int i = 0; i < devices; i++)
		ncclCommInitRank(&comms[i], devices, id, i);
	return ncclGroupEnd();
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, void *config)
{
	*made = NULL;
	return color < 0 ? 0 : make(made, standin_split_rank, standin_split_ranks);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	free(comm);
	return 0;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	return ncclCommDestroy(comm);
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
	if (!comm || !rank)
		return INVALID_ARGUMENT;
	*rank = comm->rank;
	return 0;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *ranks)
{
	if (!comm || !ranks)
		return INVALID_ARGUMENT;
	*ranks = comm->ranks;
	return 0;
}

static __thread int depth;

ncclResult_t ncclGroupStart(void)
{
	depth++;
	return 0;
}

ncclResult_t ncclGroupEnd(void)
{
	depth--;
	return 0;
}
