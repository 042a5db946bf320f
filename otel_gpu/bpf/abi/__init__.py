"""What crosses the border between the kernel and Python: a module for each header of ebpf/abi/, which `make generate` writes."""
