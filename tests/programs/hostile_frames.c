/* What hostile_frames.py calls: launches while a word of the thread's own stack or frames says something else. */
#include <stdint.h>

typedef int (*driver_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
			     void **, void **);

static int launch_it(driver_launch launch, void *function)
{
	return launch(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
}

/* With `value` at `address` meanwhile. */
int launch_with(driver_launch launch, void *function, volatile uint64_t *address, uint64_t value)
{
	uint64_t before = *address;
	int result;

	*address = value;
	result = launch_it(launch, function);
	*address = before;
	return result;
}

/* The same for the caller's frame pointer, which lies where this function's own points. A value below 4096 is an offset
 * from that place. */
__attribute__((noinline, optimize("no-omit-frame-pointer"))) int launch_with_frame_pointer(driver_launch launch,
											      void *function,
											      uint64_t value)
{
	volatile uint64_t *saved = __builtin_frame_address(0);

	return launch_with(launch, function, saved, value < 4096 ? (uint64_t)saved + value - 2048 : value);
}

/* Found by its frame pointer only. */
__attribute__((noinline, optimize("no-omit-frame-pointer"))) int launch_below_frame_pointer(driver_launch launch,
											       void *function,
											       uint64_t value, int size)
{
	volatile char variable[size + 1];
	int result;

	variable[size] = 1;
	result = launch_with_frame_pointer(launch, function, value);
	variable[0] = 2;
	return result;
}
