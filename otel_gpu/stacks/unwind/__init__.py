"""Which tables does the kernel need to walk the stacks of a process? Read, kept, and put there in the order of need."""
