/* SPDX-License-Identifier: Apache-2.0
 * trail.h: who called, by return addresses that every function writes down as it is entered: right whatever the compiler
 * does with frames, without anything that walks a stack. */
#ifndef TRAIL_H
#define TRAIL_H
#include <stdint.h>

enum { MAX_TRAIL = 64 };
extern __thread uint64_t trail[MAX_TRAIL];
extern __thread int trail_depth;

/* At the beginning of a function, and before each return from it. The barrier keeps calls from becoming jumps. */
#define ENTER() (trail[trail_depth++] = (uint64_t)__builtin_return_address(0))
#define LEAVE()                                                                                                        \
    do {                                                                                                               \
        __asm__ volatile("" ::: "memory");                                                                             \
        trail_depth--;                                                                                                 \
    } while (0)

/* Around a call of code that writes nothing down: 0 stands for the frame that calls it. */
#define CALL_OUTSIDE() (trail[trail_depth++] = 0)
#define CAME_BACK() (trail_depth--)

#define SHAPE __attribute__((noinline, noclone))

typedef void (*next)(void);

#ifdef __cplusplus
extern "C" {
#endif
/* What every shape calls in its middle: the next shape, or at the end what the stack is taken of. */
void go_on(void);
#ifdef __cplusplus
}
#endif
#endif
