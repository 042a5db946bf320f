"""Which code did it? Stacks of launches, waits, copies, memory, and of the CPU."""
