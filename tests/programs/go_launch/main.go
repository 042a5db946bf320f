// SPDX-License-Identifier: Apache-2.0

// go_launch launches from C that Go calls: Go's code has no unwinding tables, and its stacks are not the thread's.
// Reads a line before the launch and one at the end, as the other programs under observation do.
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library, *module;

static void *find(const char *name)
{
	void *found = library ? dlsym(library, name) : NULL;

	if (!found)
		abort();
	return found;
}

static void set_up(void)
{
	void *context;

	library = dlopen("libcuda.so.1", RTLD_NOW);
	((int (*)(unsigned))find("cuInit"))(0);
	((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0);
	((int (*)(void *))find("cuCtxSetCurrent"))(context);
	((int (*)(void **, const void *))find("cuModuleLoadData"))(&module, ".version 8.0");
}

static void say(const char *event)
{
	printf("{\"event\": \"%s\"}\n", event);
	fflush(stdout);
	getchar();
}

__attribute__((noinline)) static int launch_in_c(const char *name)
{
	void *kernel;
	int error;

	((int (*)(void **, void *, const char *))find("cuModuleGetFunction"))(&kernel, module, name);
	error = ((int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
			  void **))find("cuLaunchKernel"))(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
	return error + 1; // lest the call becomes a jump
}
*/
import "C"

import (
	"runtime"
	"unsafe"
)

//go:noinline
func inner(name string) int {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return int(C.launch_in_c(text))
}

//go:noinline
func outer(name string) int { return inner(name) + 1 }

//go:noinline
func inGoroutine(done chan int) { done <- outer("in_goroutine") }

func main() {
	runtime.LockOSThread()
	C.set_up()
	ready, phase := C.CString("ready"), C.CString("phase")
	C.say(ready)
	outer("in_main")
	done := make(chan int)
	go func() {
		runtime.LockOSThread()
		C.set_up()
		inGoroutine(done)
	}()
	<-done
	C.say(phase)
}
