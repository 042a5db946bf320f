/* What python_launches.py calls: launches that say where they were made, and every way from C back into Python. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

typedef int (*driver_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
			     void **, void **);
typedef void (*callback)(void);

static callback in_handler;
static volatile int calls; /* counted after each call, lest it becomes a jump */

/* Launches and returns how many native frames the stack has; without a function it does nothing. */
int launch_here(driver_launch launch, void *function, void **frames, int size)
{
	int depth;

	if (!function)
		return 0;
	depth = size ? backtrace(frames, size) : 0;
	if (launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL))
		return -1;
	return depth;
}

void call_back(callback f)
{
	f();
	calls++;
}

/* A frame too large for a row's 16-bit offset in bytes. */
void call_back_from_large_frame(callback f)
{
	volatile char large[200000];

	large[0] = 1;
	f();
	large[1] = 2;
	calls++;
}

/* A frame that keeps its place in a frame pointer, as every function with a variable frame does. */
void call_back_from_variable_frame(callback f, int size)
{
	volatile char variable[size + 1];

	variable[size] = 1;
	f();
	variable[0] = 2;
	calls++;
}

static void *start(void *f)
{
	call_back((callback)f);
	return NULL;
}

int call_back_in_thread(callback f)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, start, (void *)f))
		return -1;
	return pthread_join(thread, NULL);
}

static void handle(int number)
{
	in_handler();
	calls++;
}

/* Python code in a C signal handler: safe here only because the signal is raised in this very call. */
void call_back_in_handler(callback f)
{
	struct sigaction before, action = { .sa_handler = handle };

	in_handler = f;
	sigaction(SIGUSR1, &action, &before);
	raise(SIGUSR1);
	sigaction(SIGUSR1, &before, NULL);
}
