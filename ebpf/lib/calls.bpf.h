/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where does a thread keep the calls that it is in, from their entry to their return? In an array of a power of two, by the
 * function's number and 1; 0 where there is no call. Macros, for what is kept of a call differs. */
#ifndef OTEL_GPU_LIB_CALLS_BPF_H
#define OTEL_GPU_LIB_CALLS_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "lib/programs.bpf.h"

#define CALLS_IN(calls) ((u32)(sizeof(calls) / sizeof(*(calls))))
#define CALL_NUMBER(cookie) (COOKIE_FUNCTION(cookie) + 1U)

/* The place of a function's call, CALLS_IN where there is none. */
#define PLACE_OF_CALL(calls, number)                                                                                   \
	({                                                                                                             \
		u32 found_ = CALLS_IN(calls);                                                                          \
		_Pragma("unroll") for (u32 i_ = 0; i_ < CALLS_IN(calls); i_++)                                         \
		{                                                                                                      \
			if ((calls)[i_].function == (number))                                                          \
				found_ = i_;                                                                           \
		}                                                                                                      \
		found_;                                                                                                \
	})

/* The empty asm makes the verifier see the mask. */
#define CALL_AT(calls, place)                                                                                          \
	({                                                                                                             \
		u32 at_ = (place);                                                                                     \
		asm volatile("" : "+r"(at_));                                                                          \
		&(calls)[at_ & (CALLS_IN(calls) - 1)];                                                                 \
	})

/* The call of the cookie's function, NULL where there is none. */
#define FIND_CALL(calls, cookie)                                                                                       \
	({                                                                                                             \
		u32 place_ = PLACE_OF_CALL(calls, CALL_NUMBER(cookie));                                                \
		place_ < CALLS_IN(calls) ? CALL_AT(calls, place_) : NULL;                                              \
	})

/* Where to remember a call that begins: in the place of one that was left without returning, of the same function, else in
 * a free one, else in that of the oldest. */
#define ROOM_FOR_CALL(calls, number)                                                                                   \
	({                                                                                                             \
		u32 place_ = PLACE_OF_CALL(calls, number);                                                             \
		if (place_ == CALLS_IN(calls))                                                                         \
			place_ = PLACE_OF_CALL(calls, 0);                                                              \
		if (place_ == CALLS_IN(calls)) {                                                                       \
			lose(LOSS_CALLS_FULL);                                                                         \
			place_ = 0;                                                                                    \
			_Pragma("unroll") for (u32 i_ = 1; i_ < CALLS_IN(calls); i_++)                                 \
			{                                                                                              \
				if ((calls)[i_].start_ns < CALL_AT(calls, place_)->start_ns)                           \
					place_ = i_;                                                                   \
			}                                                                                              \
		}                                                                                                      \
		CALL_AT(calls, place_);                                                                                \
	})

#endif
