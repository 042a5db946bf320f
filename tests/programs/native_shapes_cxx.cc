/* SPDX-License-Identifier: Apache-2.0
 * What C++ adds to native_shapes.c: code that runs while an exception is on its way. */
#include "trail.h"

namespace {
volatile int thrown = 3;

struct Owner {
    SHAPE ~Owner();
};

SHAPE void raise_it()
{
    ENTER();
    if (thrown) {
        trail_depth--;
        throw static_cast<int>(thrown);
    }
    LEAVE();
}
} // namespace

/* Runs from the landing pad of a function that the exception passes through. */
Owner::~Owner()
{
    ENTER();
    go_on();
    LEAVE();
}

extern "C" {
/* The landing pad lies in a cold part, and the exception is still being held. */
SHAPE void catches()
{
    ENTER();
    try {
        raise_it();
    } catch (int) {
        go_on();
    }
    LEAVE();
}

SHAPE void owns()
{
    ENTER();
    Owner owner;
    raise_it();
}

SHAPE void cleans_up()
{
    ENTER();
    int depth = trail_depth;
    try {
        owns();
    } catch (int) {
    }
    trail_depth = depth;
    LEAVE();
}

SHAPE void throws_through()
{
    ENTER();
    for (int i = 0; i < 3; i++) {
        try {
            raise_it();
        } catch (int &n) {
            if (i == 2)
                go_on();
        }
    }
    LEAVE();
}
}
