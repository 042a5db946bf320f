/* SPDX-License-Identifier: Apache-2.0
 * native_bare: a program without a C library. Its entry is written by hand and has no unwinding rules, as that of musl
 * and of Go. Prints {"event": "spinning", "stack": [...]} and runs until it is killed. */
#include <stdint.h>

#define SHAPE __attribute__((noinline, noclone))
enum { MAX_TRAIL = 64 };

static uint64_t addresses[MAX_TRAIL];
static int depth;
static volatile uint64_t spins;

#define ENTER() (addresses[depth++] = (uint64_t)__builtin_return_address(0))
#define LEAVE() __asm__ volatile("" ::: "memory")

static void say(const char *text, uint64_t size)
{
    uint64_t result;

    __asm__ volatile("syscall" : "=a"(result) : "a"(1), "D"(1), "S"(text), "d"(size) : "rcx", "r11", "memory");
}

static void say_number(uint64_t number)
{
    char digits[20];
    int at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + number % 10);
    } while (number /= 10);
    say(digits + at, sizeof(digits) - (uint64_t)at);
}

#define SAY(text) say(text, sizeof(text) - 1)

SHAPE void spin(void)
{
    ENTER();
    SAY("{\"event\": \"spinning\", \"stack\": [");
    for (int i = depth; i-- > 0;) {
        say_number(addresses[i]);
        if (i)
            SAY(", ");
    }
    SAY("]}\n");
    for (;;)
        spins++;
}

SHAPE void inner(int x)
{
    volatile char bytes[200];

    ENTER();
    bytes[x] = 1;
    spin();
    bytes[x] = 2;
    LEAVE();
}

SHAPE void outer(int x)
{
    ENTER();
    inner(x + 1);
    LEAVE();
}

__attribute__((used)) void start(void)
{
    ENTER();
    outer(1);
    LEAVE();
}

__asm__(".globl _start\n.type _start, @function\n_start: xor %ebp, %ebp\n and $-16, %rsp\n call start\n ud2\n"
        ".size _start, .-_start\n");
