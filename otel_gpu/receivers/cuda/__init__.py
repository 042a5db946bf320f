"""What did CUDA's driver and HIP's runtime do? Counted in the kernel, read once an interval."""
