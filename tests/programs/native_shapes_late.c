/* SPDX-License-Identifier: Apache-2.0
 * What native_shapes calls in another file: a small function; one that goes on; and one whose address is only chosen when a lazily bound call is made for the first time: the dynamic linker asks
 * for it, and is on the stack, called from a stub without a frame of its own. */
#include "trail.h"

static int chosen(void)
{
    return 7;
}

static int (*resolve_late(void))(void)
{
    ENTER();
    go_on();
    LEAVE();
    return chosen;
}

__attribute__((ifunc("resolve_late"))) int late(void);

int small(int x)
{
    return x + 1;
}

SHAPE void from_library(void)
{
    ENTER();
    go_on();
    LEAVE();
}
