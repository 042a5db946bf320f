// What do threads do that each stand in a function of their own? Prints "ready" once they do, and ends with its input.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long turns;

__attribute__((noinline)) static void stands_in_a_lock(void)
{
	pthread_mutex_lock(&lock);
	turns++;
}

__attribute__((noinline)) static void stands_in_a_sleep(void)
{
	for (;;)
		sleep(1000);
}

__attribute__((noinline)) static void runs_and_runs(void)
{
	for (;;)
		turns++;
}

static void *locked(void *unused)
{
	stands_in_a_lock();
	turns++;
	return unused;
}

static void *sleeps(void *unused)
{
	stands_in_a_sleep();
	turns++;
	return unused;
}

static void *runs(void *unused)
{
	runs_and_runs();
	turns++;
	return unused;
}

static void start(const char *name, void *(*function)(void *))
{
	pthread_t thread;

	pthread_create(&thread, NULL, function, NULL);
	pthread_setname_np(thread, name);
}

int main(void)
{
	char byte;

	pthread_mutex_lock(&lock);
	start("locked", locked);
	start("sleeps \033[31m", sleeps);
	start("runs", runs);
	usleep(100000);
	puts("ready");
	fflush(stdout);
	return read(0, &byte, 1) < 0;
}
