/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which communicator is this: whose rank of how many, and by what id is it the same on all ranks? */
#ifndef OTEL_GPU_NCCL_COMMS_BPF_H
#define OTEL_GPU_NCCL_COMMS_BPF_H

#include "abi/nccl.h"
#include "lib/arguments.bpf.h"
#include "lib/shares.bpf.h"

/* Communicators whose making was seen, by their address, as long as they are there. Written here; those of programs that
 * have ended are removed by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct nccl_comm_key);
	__type(value, struct nccl_comm);
} nccl_comms SEC(".maps");

static const struct nccl_comm no_comm = {};

#define FNV_BASIS 0xcbf29ce484222325ULL
#define FNV_PRIME 0x100000001b3ULL

/* FNV-1a over the bytes of a word, the lowest first. */
static __always_inline u64 fnv_word(u64 hash, u64 word)
{
	for (int i = 0; i < 8; i++) {
		hash = (hash ^ (word & 0xff)) * FNV_PRIME;
		word >>= 8;
	}
	return hash;
}

/* Of all bytes of an id, as the first ones are an address and port that many ids have; 0 where they cannot be read. */
static __always_inline u64 hash_id(u64 at)
{
	u64 hash = FNV_BASIS, word;

	for (int i = 0; i < NCCL_ID_BYTES / 8; i++) {
		if (!read_user(&word, sizeof(word), at + i * 8))
			return 0;
		hash = fnv_word(hash, word);
	}
	return hash ? hash : 1;
}

static __always_inline struct nccl_comm *comm_at(const struct caller *who, u64 address)
{
	struct nccl_comm_key key = { who->tgid, who->exec_id, address };

	return bpf_map_lookup_elem(&nccl_comms, &key);
}

RARE int forget_comm(u64 address)
{
	struct nccl_comm_key key = { .address = address };
	struct caller who;

	if (!identify(&who))
		return 0;
	key.tgid = who.tgid;
	key.exec_id = who.exec_id;
	return TAKE_OUT(nccl_comms, TABLE_NCCL_COMMS, &who, &key);
}

/* Remembers a communicator that was made. One for which there is no room is shown without its hash. */
RARE int keep_comm(u64 address, u64 hash, s32 rank, s32 ranks)
{
	struct nccl_comm_key key = { .address = address };
	struct nccl_comm *comm;
	struct caller who;

	if (!address || !hash || !identify(&who))
		return 0;
	forget_comm(address); /* one whose end was not seen */
	meet();
	key.tgid = who.tgid;
	key.exec_id = who.exec_id;
	PUT_IN(nccl_comms, TABLE_NCCL_COMMS, &who, &key, &no_comm);
	comm = bpf_map_lookup_elem(&nccl_comms, &key);
	if (!comm) {
		lose(LOSS_NCCL_COMMS_FULL);
		return 0;
	}
	comm->rank = rank;
	comm->ranks = ranks;
	comm->comm = hash;
	return 0;
}

/* A rank that can be one. */
static __always_inline int is_rank(s32 rank, s32 ranks)
{
	return rank >= 0 && rank < ranks && ranks <= NCCL_MOST_RANKS;
}

/* Which rank a communicator is, as it says itself where the library's own functions look for it. */
static __always_inline void read_rank(u64 address, u64 cookie, s32 *rank, s32 *ranks)
{
	s32 found[2] = {};

	if (!NCCL_RANK_AT(cookie) || !NCCL_RANKS_AT(cookie) || !address)
		return;
	if (!read_user(&found[0], 4, address + NCCL_RANK_AT(cookie)) ||
	    !read_user(&found[1], 4, address + NCCL_RANKS_AT(cookie)) || !is_rank(found[0], found[1]))
		return;
	*rank = found[0];
	*ranks = found[1];
}

#endif
