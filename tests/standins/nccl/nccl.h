/* The interface of NCCL 2.32, as nccl.h has it, and what the stand-in tells whoever wants to know. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct ncclComm *ncclComm_t;
typedef void *stream_t;
typedef int ncclResult_t;

#define STANDIN_COLLECTIVES(X)                                                                                         \
	X(AllReduce, (const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, stream_t stream)) \
	X(ReduceScatter, (const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, stream_t stream)) \
	X(AllGather, (const void *send, void *recv, size_t count, int type, ncclComm_t comm, stream_t stream)) \
	X(AlltoAll, (const void *send, void *recv, size_t count, int type, ncclComm_t comm, stream_t stream)) \
	X(Broadcast, (const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm, stream_t stream)) \
	X(Reduce, (const void *send, void *recv, size_t count, int type, int op, int root, ncclComm_t comm, stream_t stream)) \
	X(Gather, (const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm, stream_t stream)) \
	X(Scatter, (const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm, stream_t stream))
#define STANDIN_MESSAGES(X)                                                                                            \
	X(Send, (const void *buffer, size_t count, int type, int peer, ncclComm_t comm, stream_t stream))               \
	X(Recv, (void *buffer, size_t count, int type, int peer, ncclComm_t comm, stream_t stream))

#define DECLARE(name, arguments) ncclResult_t nccl##name arguments;
STANDIN_COLLECTIVES(DECLARE)
STANDIN_MESSAGES(DECLARE)
ncclResult_t ncclBcast(void *buffer, size_t count, int type, int root, ncclComm_t comm, stream_t stream);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, void *config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int ids, ncclUniqueId *id, void *config);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int devices, const int *list);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, void *config);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
ncclResult_t ncclCommCount(ncclComm_t comm, int *ranks);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* Called within each collective, at once. */
extern void (*standin_entered)(ncclComm_t comm, uint64_t count);
/* Where it is not NULL, each collective makes a queue pair by it. */
extern void *(*standin_create_qp)(void *pd, void *attr);
extern void *standin_pd, *standin_attr, *standin_qp;
/* What functions return that put work on a stream or make a communicator: 0, or an error, or 7 for "in progress". */
extern ncclResult_t standin_result;
/* The rank and number of ranks that the next split gives. */
extern int standin_split_rank, standin_split_ranks;
