/* A library that says it is CPython 3.14 and is not: what its symbols name is filled from the environment, or nonsense. */
#include <stdint.h>

struct offsets {
	char cookie[8];
	uint64_t version, free_threaded, words[120];
};

/* Every offset points far away. */
struct offsets _PyRuntime = {
	.cookie = "xdebugpy", .version = 0x030e0af0, .words = { [0 ... 119] = 0xfffe },
};
const uint32_t Py_Version = 0x030e0af0;
int PyCode_Type;
static int key;

int spin(int (*f)(int), int n);

int _PyEval_EvalFrameDefault(void *state, void *frame, int n)
{
	volatile int sum = 0;

	for (int i = 0; i < n; i++)
		sum += i;
	return sum + (state == frame);
}

void *PyGILState_GetThisThreadState(void)
{
	return &key;
}

int run(int n)
{
	return _PyEval_EvalFrameDefault(&key, &_PyRuntime, n) + 1;
}
