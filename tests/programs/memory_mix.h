/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MEMORY_MIX_H
#define MEMORY_MIX_H
#include "tally.h"

/* Runs one round of every family of copy, memset, allocation, free and synchronisation, sizes chosen by `round`.
 * `contexts` are those of two devices (the same one twice when there is only one: no peer copies then). */
void memory_mix(struct tally *tally, unsigned round, void *contexts[2]);

/* Makes calls that must fail: an allocation beyond any memory, a free of no allocation. */
void memory_errors(struct tally *tally);
#endif
